package apiserver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// as has f answer those whom the server knows, and refuses others.
func (s *Server) as(f func(http.ResponseWriter, *http.Request, User)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		user, known := s.user(r)
		s.mu.Lock()
		s.requests = append(s.requests, fmt.Sprintf("%s %s by %s", r.Method, r.URL.Path, user.Username))
		busy, down := s.conduct.Refuse > 0, s.conduct.Down > 0
		s.conduct.Refuse, s.conduct.Down = max(s.conduct.Refuse-1, 0), max(s.conduct.Down-1, 0)
		s.mu.Unlock()
		switch {
		case down:
			w.WriteHeader(http.StatusServiceUnavailable)
		case busy:
			w.Header().Set("Retry-After", "1")
			refuse(w, http.StatusTooManyRequests, "TooManyRequests", "too many requests, please try again later")
		case !known:
			refuse(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		default:
			f(w, r, user)
		}
	}
}

// user tells who makes a request. As a real API server it looks at a client's
// certificate each time, not only when the connection is made.
func (s *Server) user(r *http.Request) (User, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(r.TLS.VerifiedChains) > 0 {
		leaf := r.TLS.PeerCertificates[0]
		return User{Username: leaf.Subject.CommonName, Groups: leaf.Subject.Organization}, time.Now().Before(leaf.NotAfter) && !s.conduct.Revoked
	}
	if name, password, ok := r.BasicAuth(); ok {
		want, known := s.passwords[name]
		return User{Username: name}, known && password == want
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	user, known := s.tokens[token]
	return user, known
}

func (s *Server) review(w http.ResponseWriter, r *http.Request, user User) {
	var in struct {
		APIVersion, Kind string
	}
	if !read(w, r, &in) {
		return
	}
	if in.Kind != "SelfSubjectReview" || in.APIVersion != "authentication.k8s.io/v1" {
		refuse(w, http.StatusBadRequest, "BadRequest", "no kind "+in.Kind)
		return
	}
	user.Groups = append(user.Groups, "system:authenticated")
	answer(w, http.StatusCreated, map[string]any{"kind": in.Kind, "apiVersion": in.APIVersion, "status": map[string]any{"userInfo": user}})
}

// createToken makes a token of a service account, which signs in.
func (s *Server) createToken(w http.ResponseWriter, r *http.Request, _ User) {
	var in struct {
		Spec struct {
			Audiences         []string
			ExpirationSeconds int
		}
	}
	if !read(w, r, &in) {
		return
	}
	if in.Spec.ExpirationSeconds == 0 {
		in.Spec.ExpirationSeconds = 3600
	}
	if in.Spec.ExpirationSeconds > 86400 {
		w.Header().Add("Warning", fmt.Sprintf("299 - %q", fmt.Sprintf("requested expiration of %d seconds shortened to 86400 seconds", in.Spec.ExpirationSeconds)))
		in.Spec.ExpirationSeconds = 86400
	}
	name := fmt.Sprintf("system:serviceaccount:%s:%s", r.PathValue("namespace"), r.PathValue("account"))
	s.mu.Lock()
	token := fmt.Sprintf("token-%d-of-%s", len(s.tokens), r.PathValue("account"))
	s.tokens[token] = User{Username: name, Groups: in.Spec.Audiences}
	s.mu.Unlock()
	answer(w, http.StatusCreated, map[string]any{"kind": "TokenRequest", "status": map[string]any{
		"token": token, "expirationTimestamp": time.Now().Add(time.Duration(in.Spec.ExpirationSeconds) * time.Second).UTC().Format(time.RFC3339),
	}})
}

func read(w http.ResponseWriter, r *http.Request, to any) bool {
	err := json.NewDecoder(r.Body).Decode(to)
	if err != nil || r.Header.Get("Content-Type") != "application/json" {
		refuse(w, http.StatusBadRequest, "BadRequest", "the body is no JSON")
		return false
	}
	return true
}

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v)
}

func refuse(w http.ResponseWriter, code int, reason, message string) {
	answer(w, code, map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": code})
}
