package proxy

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/fault"
)

// websocketToken is how browsers send a bearer token to an API server, in the
// header Sec-WebSocket-Protocol.
const websocketToken = "base64url.bearer.authorization.k8s.io."

// An admission is what a request was let through for.
type admission struct {
	who     ticket.Process
	profile *profile.Profile
	holder  *ticket.Holder
}

// A refusal is an answer that this proxy gives itself.
type refusal struct {
	code    int
	outcome string // for the metrics
	message string
	hint    string
}

func (r *refusal) Error() string { return r.message }

const runAgain = "run the command again; holdfast kubeconfig check finds what is wrong with the kubeconfig"

// unauthorized returns a refusal about a ticket.
func unauthorized(err error) *refusal {
	r := &refusal{code: http.StatusUnauthorized, outcome: "ticket", message: err.Error(), hint: runAgain}
	if e, ok := fault.AsError(err); ok {
		r.message, r.hint = e.Message, e.Hint
	}
	return r
}

// admit judges one request on its own, whatever came before it on its connection:
// the ticket, that it is for this name, that its process lives and owns the
// connection, and that policy still allows it.
func (p *Proxy) admit(c *connection, r *http.Request) (*admission, *refusal) {
	token, err := bearer(r)
	if err != nil {
		return nil, unauthorized(err)
	}
	h, err := p.options.Tickets.Check(token)
	if err != nil {
		return nil, unauthorized(err)
	}
	if refused := fits(c, r, h.Profile); refused != nil {
		return nil, refused
	}
	asked, err := c.owns(h)
	if asked {
		p.counts.ownership(err == nil)
	}
	if err != nil {
		refused := unauthorized(err)
		refused.outcome = "owner"
		return nil, refused
	}
	c.doors.welcome(c)
	return p.allow(h)
}

// allow asks for the profile and the policy as they are now.
func (p *Proxy) allow(h *ticket.Holder) (*admission, *refusal) {
	prof, known := p.options.Profile(h.Profile)
	if !known {
		return nil, &refusal{
			code: http.StatusServiceUnavailable, outcome: "profile",
			message: fmt.Sprintf("there is no profile %s any more, or it has a fault", h.Profile), hint: "holdfast status says which",
		}
	}
	if !p.options.Allowed(h.Process, h.Profile) {
		return nil, &refusal{
			code: http.StatusForbidden, outcome: "policy",
			message: fmt.Sprintf("the broker's policy does not allow uid %d the profile %s", h.Process.UID, h.Profile),
			hint:    "whoever runs the broker can change its policy; holdfast policy check explains it",
		}
	}
	return &admission{who: h.Process, profile: prof, holder: h}, nil
}

// still judges a request again that has been waited for, its body for example: by
// now the ticket may be forgotten, and profile and policy others.
func (p *Proxy) still(a *admission) *refusal {
	if err := a.holder.Alive(); err != nil {
		return unauthorized(err)
	}
	now, refused := p.allow(a.holder)
	if refused == nil && !reflect.DeepEqual(now.profile, a.profile) {
		refused = &refusal{
			code: http.StatusServiceUnavailable, outcome: "profile",
			message: fmt.Sprintf("profile %s was changed at this moment", a.profile.Name), hint: "try again",
		}
	}
	return refused
}

// bearer returns the one bearer token of a request (RFC 6750, section 2.1).
func bearer(r *http.Request) (string, error) {
	values := r.Header["Authorization"]
	switch {
	case carriesToken(r):
		return "", fmt.Errorf("a token in Sec-WebSocket-Protocol is not taken")
	case len(values) == 0:
		return "", fmt.Errorf("the request has no ticket")
	case len(values) > 1:
		return "", fmt.Errorf("the request has %d Authorization headers", len(values))
	}
	scheme, token, found := strings.Cut(values[0], " ")
	if !found || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", fmt.Errorf("the request signs in otherwise than with a ticket")
	}
	return token, nil
}

// carriesToken reports whether a request has a token among its WebSocket protocols.
func carriesToken(r *http.Request) bool {
	for _, v := range r.Header["Sec-Websocket-Protocol"] {
		if strings.Contains(v, websocketToken) {
			return true
		}
	}
	return false
}

// fits refuses a ticket on a connection that is for another profile: by its
// listener, or by the name in its handshake. The shared listener needs the name;
// on a profile's own one it may be missing or be anything that is no profile's.
func fits(c *connection, r *http.Request, ticketFor string) *refusal {
	name := ""
	if r.TLS != nil {
		name = strings.ToLower(r.TLS.ServerName)
	}
	asked, isProfile := strings.CutSuffix(name, "."+profile.Domain)
	switch {
	case c.profile == "" && !isProfile:
		return unauthorized(&fault.Error{
			Message: "the connection names no profile",
			Hint:    "the kubeconfig's cluster needs tls-server-name: " + ticketFor + "." + profile.Domain + "; for clients that ignore it: holdfast kubeconfig add --dedicated-port",
		})
	case isProfile && asked != ticketFor, c.profile != "" && c.profile != ticketFor:
		return unauthorized(&fault.Error{
			Message: "the ticket is for the profile " + ticketFor + ", the connection for another",
			Hint:    "the kubeconfig's cluster and user have to be of one profile; holdfast kubeconfig check finds it",
		})
	}
	return nil
}
