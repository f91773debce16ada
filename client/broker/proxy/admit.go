package proxy

import (
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"holdfast/client/broker/ticket"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

// websocketToken is how browsers send a bearer token to an API server, in the
// header Sec-WebSocket-Protocol.
const websocketToken = "base64url.bearer.authorization.k8s.io."

// An admission says for whom and for which profile a request passes.
type admission struct {
	who     ticket.Process
	profile *profile.Profile
	holder  *ticket.Holder
}

// A refusal is an answer that this proxy gives itself.
type refusal struct {
	code    int
	outcome string // for the metrics
	fault   *fault.Error
}

// Error returns the message of the fault.
func (r *refusal) Error() string { return r.fault.Message }

func refuse(code int, outcome, hint, format string, args ...any) *refusal {
	return &refusal{code, outcome, &fault.Error{Message: fmt.Sprintf(format, args...), Hint: hint}}
}

const runAgain = "run the command again; holdfast kubeconfig check finds what is wrong with the kubeconfig"

// unauthorized returns a refusal about a ticket.
func unauthorized(err error) *refusal {
	if e, ok := fault.AsError(err); ok {
		return &refusal{http.StatusUnauthorized, "ticket", e}
	}
	return refuse(http.StatusUnauthorized, "ticket", runAgain, "%v", err)
}

// admit judges one request on its own, whatever came before it on its connection:
// the ticket, that it is for this name, that its process lives and owns the
// connection, and that policy still allows it.
func (p *Proxy) admit(c *connection, r *http.Request) (*admission, *refusal) {
	token, refused := bearer(r)
	if refused != nil {
		return nil, refused
	}
	if !strings.HasPrefix(token, ticket.Prefix) {
		return nil, foreign(token)
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
	c.all.authenticated(c)
	return p.allow(h)
}

// allow asks for the profile and the policy as they are now.
func (p *Proxy) allow(h *ticket.Holder) (*admission, *refusal) {
	prof, known := p.options.Profile(h.Profile)
	if !known {
		return nil, refuse(http.StatusServiceUnavailable, "profile", "holdfast status says which",
			"there is no profile %s any more, or it has a fault", h.Profile)
	}
	if !p.options.Allowed(h.Process, h.Profile) {
		return nil, refuse(http.StatusForbidden, "policy", "the broker's administrator can change its policy; holdfast policy check explains it",
			"the broker's policy does not allow uid %d the profile %s", h.Process.UID, h.Profile)
	}
	return &admission{who: h.Process, profile: prof, holder: h}, nil
}

// still judges a request again after a wait, for its body for example: by now the
// ticket may be forgotten, and profile and policy may have changed.
func (p *Proxy) still(a *admission) *refusal {
	if err := a.holder.Alive(); err != nil {
		return unauthorized(err)
	}
	now, refused := p.allow(a.holder)
	if refused == nil && !reflect.DeepEqual(now.profile, a.profile) {
		refused = refuse(http.StatusServiceUnavailable, "profile", "try again", "profile %s was changed at this moment", a.profile.Name)
	}
	return refused
}

// bearer returns the one bearer token of a request (RFC 6750, section 2.1).
func bearer(r *http.Request) (string, *refusal) {
	no := func(format string, args ...any) (string, *refusal) {
		return "", refuse(http.StatusUnauthorized, "ticket", runAgain, format, args...)
	}
	values := r.Header["Authorization"]
	switch {
	case carriesToken(r):
		return no("the proxy takes no token in Sec-WebSocket-Protocol")
	case len(values) == 0:
		return no("the request has no ticket")
	case len(values) > 1:
		return no("the request has %d Authorization headers", len(values))
	}
	scheme, token, found := strings.Cut(values[0], " ")
	if !found || !strings.EqualFold(scheme, "Bearer") || token == "" {
		return no("the request's Authorization header has no ticket")
	}
	return token, nil
}

// foreign refuses a token that is no ticket.
func foreign(token string) *refusal {
	if token == brokerwire.Placeholder {
		return refuse(http.StatusUnauthorized, "ticket", runAgain, "no broker listened when the plugin asked for a ticket")
	}
	what := "a token"
	if strings.HasPrefix(token, "eyJ") && strings.Count(token, ".") == 2 { // {" in base64: RFC 7515
		what = "a JWT"
	}
	return refuse(http.StatusUnauthorized, "ticket",
		"a program that sends tokens of its own needs mode token; kubectl must get neither --token nor a user with a token",
		"the request has %s, which is no ticket of holdfast", what)
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

// fits refuses a ticket on a connection that is for another profile: by its listener,
// its address, or the name in its handshake. The shared address needs the name; at a
// profile's own one it may be missing or be anything that is no profile's.
func fits(c *connection, r *http.Request, ticketFor string) *refusal {
	name := ""
	if r.TLS != nil {
		name = strings.ToLower(r.TLS.ServerName)
	}
	asked, isProfile := strings.CutSuffix(name, "."+profile.Domain)
	switch {
	case c.profile == "" && !isProfile:
		return refuse(http.StatusUnauthorized, "ticket",
			"the kubeconfig's cluster needs tls-server-name: "+ticketFor+"."+profile.Domain+", or the server that holdfast kubeconfig check --fix writes",
			"the connection names no profile")
	case isProfile && asked != ticketFor, c.profile != "" && c.profile != ticketFor:
		return refuse(http.StatusUnauthorized, "ticket", "the kubeconfig's cluster and user have to be of one profile; holdfast kubeconfig check finds it",
			"the ticket is for the profile %s, the connection for another", ticketFor)
	}
	return nil
}
