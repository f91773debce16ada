package apiserver

import (
	"crypto"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

const requestsPath = "/apis/certificates.k8s.io/v1/certificatesigningrequests"

type condition struct {
	Type    string `json:"type"`
	Status  string `json:"status"`
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
}

type signingRequest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string `json:"name,omitempty"`
		GenerateName    string `json:"generateName,omitempty"`
		UID             string `json:"uid,omitempty"`
		ResourceVersion string `json:"resourceVersion,omitempty"`
	} `json:"metadata"`
	Spec struct {
		Request           []byte   `json:"request"`
		SignerName        string   `json:"signerName"`
		ExpirationSeconds int      `json:"expirationSeconds,omitempty"`
		Usages            []string `json:"usages"`
		Username          string   `json:"username,omitempty"`
	} `json:"spec"`
	Status struct {
		Conditions  []condition `json:"conditions,omitempty"`
		Certificate []byte      `json:"certificate,omitempty"`
	} `json:"status"`
}

// RequestNames returns the names of the certificate signing requests so far.
func (s *Server) RequestNames() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.signing))
}

// Asked returns the signer, the usages and the lifetime that a request asks for.
func (s *Server) Asked(name string) (signer string, usages []string, lifetime time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.signing[name]
	return o.Spec.SignerName, o.Spec.Usages, time.Duration(o.Spec.ExpirationSeconds) * time.Second
}

// Decide decides on a request: the next step of one that was held or approved.
func (s *Server) Decide(name, decision string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.decide(s.signing[name], decision)
}

// Delete deletes a request.
func (s *Server) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.signing, name)
	s.touch(nil)
}

// touch tells the watches of a change. The lock is held.
func (s *Server) touch(o *signingRequest) {
	s.version++
	if o != nil {
		o.Metadata.ResourceVersion = strconv.Itoa(s.version)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) createRequest(w http.ResponseWriter, r *http.Request, user User) {
	var o signingRequest
	if !read(w, r, &o) {
		return
	}
	block, _ := pem.Decode(o.Spec.Request)
	if block == nil {
		refuse(w, http.StatusUnprocessableEntity, "Invalid", "spec.request: Invalid value: PEM block type must be CERTIFICATE REQUEST")
		return
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	switch {
	case err != nil || request.CheckSignature() != nil:
		refuse(w, http.StatusUnprocessableEntity, "Invalid", "spec.request: Invalid value")
		return
	case o.Spec.ExpirationSeconds != 0 && o.Spec.ExpirationSeconds < 600:
		refuse(w, http.StatusUnprocessableEntity, "Invalid", "spec.expirationSeconds: Invalid value: may not specify a duration less than 600 seconds (10 minutes)")
		return
	case slices.Contains(request.Subject.Organization, "system:masters"):
		refuse(w, http.StatusForbidden, "Forbidden", "certificatesigningrequests.certificates.k8s.io is forbidden: use of "+o.Spec.SignerName+" signer with system:masters group is not allowed")
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.signing[o.Metadata.Name] != nil {
		refuse(w, http.StatusConflict, "AlreadyExists", fmt.Sprintf("certificatesigningrequests.certificates.k8s.io %q already exists", o.Metadata.Name))
		return
	}
	if o.Metadata.Name == "" {
		o.Metadata.Name = fmt.Sprintf("%s%05d", o.Metadata.GenerateName, len(s.signing))
	}
	o.Metadata.UID = "uid-" + o.Metadata.Name
	o.Spec.Username = user.Username
	s.signing[o.Metadata.Name] = &o
	s.touch(&o)
	made, _ := json.Marshal(o) // it was read from JSON
	s.decide(&o, s.conduct.Decision)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(made)
}

// decide changes a request as an approver and a signer would. The lock is held.
func (s *Server) decide(o *signingRequest, decision string) {
	add := func(kind string) {
		o.Status.Conditions = append(o.Status.Conditions, condition{Type: kind, Status: "True", Reason: "Decided", Message: s.conduct.Message})
	}
	switch decision {
	case Hold:
		return
	case Deny:
		add("Denied")
	case Fail:
		add("Approved")
		add("Failed")
	case Approve:
		add("Approved")
	default:
		add("Approved")
		o.Status.Certificate = s.issue(o)
	}
	s.touch(o)
}

func (s *Server) issue(o *signingRequest) []byte {
	block, _ := pem.Decode(o.Spec.Request)
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err != nil {
		s.tb.Fatalf("apiserver: %v", err)
	}
	lifetime := time.Hour
	if o.Spec.ExpirationSeconds > 0 {
		lifetime = time.Duration(o.Spec.ExpirationSeconds) * time.Second
	}
	c := s.conduct
	if c.Lifetime > 0 {
		lifetime = c.Lifetime
	}
	template := &x509.Certificate{
		Subject: request.Subject, KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		NotBefore: time.Now().Add(c.Skew), NotAfter: time.Now().Add(c.Skew + lifetime),
	}
	var public crypto.PublicKey = request.PublicKey
	if c.Subject != nil {
		template.Subject = *c.Subject
	}
	if c.Key != nil {
		public = c.Key
	}
	if c.Usage != nil {
		template.ExtKeyUsage = c.Usage
	}
	return encode(s.sign(template, public))
}

func (s *Server) getRequest(w http.ResponseWriter, r *http.Request, _ User) {
	s.mu.Lock()
	o := s.signing[r.PathValue("name")]
	var answer []byte
	if o != nil {
		answer, _ = json.Marshal(o)
	}
	s.mu.Unlock()
	if o == nil {
		refuse(w, http.StatusNotFound, "NotFound", fmt.Sprintf("certificatesigningrequests %q not found", r.PathValue("name")))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer)
}

// watchRequests sends what becomes of one request.
func (s *Server) watchRequests(w http.ResponseWriter, r *http.Request, _ User) {
	q := r.URL.Query()
	name, ok := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	seen, _ := strconv.Atoi(q.Get("resourceVersion"))
	s.mu.Lock()
	forbidden := s.conduct.NoWatch
	s.mu.Unlock()
	if forbidden || !ok || q.Get("watch") != "true" {
		refuse(w, http.StatusForbidden, "Forbidden", "certificatesigningrequests is forbidden: cannot watch")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	end := time.After(time.Duration(seconds) * time.Second)
	for {
		line, now, changed, exists := s.news(name, seen)
		_, _ = w.Write(line)
		w.(http.Flusher).Flush()
		if seen = now; !exists {
			return
		}
		select {
		case <-changed:
		case <-end:
			return
		case <-r.Context().Done():
			return
		}
	}
}

func (s *Server) news(name string, seen int) (line []byte, now int, changed chan struct{}, exists bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.signing[name]
	if o == nil {
		return []byte(`{"type":"DELETED","object":{}}` + "\n"), seen, s.changed, false
	}
	version, _ := strconv.Atoi(o.Metadata.ResourceVersion)
	if version > seen {
		line, _ = json.Marshal(map[string]any{"type": "MODIFIED", "object": o})
		line = append(line, '\n')
	}
	return line, max(seen, version), s.changed, true
}
