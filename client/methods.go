package client

import (
	"context"
	"crypto/rand"
	"encoding/json"

	"holdfast/internal/agentwire"
	"holdfast/internal/dial"
	"holdfast/internal/metrics"
)

// Keys lists the keys that the caller may see, or with all everybody's, where
// the policy lets the caller see those.
func (c *Client) Keys(ctx context.Context, all bool) ([]agentwire.Key, error) {
	var reply agentwire.ListKeysReply
	err := c.call(ctx, repeatable, agentwire.ListKeys, agentwire.ListKeysParameters{All: all}, &reply)
	return reply.Keys, err
}

// GetKey describes one key. [Client.Key] returns it as a signer.
func (c *Client) GetKey(ctx context.Context, name string) (agentwire.Key, error) {
	return c.keyCall(ctx, repeatable, agentwire.GetKey, agentwire.NameParameters{Name: name})
}

// CreateKey makes a key inside the device and returns its description. An RSA
// key can take a minute. When p has no request id it gets one, so that the call
// may be repeated after a lost connection without making a second key; it is not
// repeated when it has a card's PIN.
func (c *Client) CreateKey(ctx context.Context, p agentwire.CreateKeyParameters) (agentwire.Key, error) {
	if p.RequestID == "" {
		p.RequestID = rand.Text()
	}
	again := repeatable
	if p.OnCard != nil && len(p.PIN) > 0 {
		again = onceOnly // the first call may have spent a try of the card's PIN
	}
	return c.keyCall(ctx, again, agentwire.CreateKey, p)
}

// DeleteKey deletes a key. There is no way back.
func (c *Client) DeleteKey(ctx context.Context, name string) error {
	return c.call(ctx, onceOnly, agentwire.DeleteKey, agentwire.NameParameters{Name: name}, &agentwire.Empty{})
}

// ExportKey returns a key in its device's exchange format (for a TPM a TSS2
// PRIVATE KEY, PEM), which is of no use without the device.
func (c *Client) ExportKey(ctx context.Context, name string) (string, error) {
	var reply agentwire.ExportKeyReply
	err := c.call(ctx, repeatable, agentwire.ExportKey, agentwire.NameParameters{Name: name}, &reply)
	return reply.File, err
}

// AdoptKey takes a key file in its device's exchange format.
func (c *Client) AdoptKey(ctx context.Context, p agentwire.AdoptKeyParameters) (agentwire.Key, error) {
	if p.RequestID == "" {
		p.RequestID = rand.Text()
	}
	return c.keyCall(ctx, repeatable, agentwire.AdoptKey, p)
}

// BindKey sets the servers that a tls-client key may be used against.
func (c *Client) BindKey(ctx context.Context, name string, servers []agentwire.Server) (agentwire.Key, error) {
	return c.keyCall(ctx, repeatable, agentwire.BindKey, agentwire.BindKeyParameters{Name: name, Servers: servers})
}

// InstallCertificate stores a certificate chain, DER, leaf first, in the key's
// record. The leaf must be for this key.
func (c *Client) InstallCertificate(ctx context.Context, name string, chain [][]byte) (agentwire.Key, error) {
	return c.keyCall(ctx, repeatable, agentwire.InstallCertificate, agentwire.InstallCertificateParameters{Name: name, Chain: chain})
}

// Unlock proves a PIN to the device. Without one the agent asks the person in front
// of this process, or of the one that p or else ctx (see [OnBehalfOf]) reports. It
// is never repeated by itself once the agent may have read it, since a wrong PIN
// costs a try.
func (c *Client) Unlock(ctx context.Context, p agentwire.UnlockKeyParameters) (agentwire.UnlockKeyReply, error) {
	if p.OnBehalfOf == nil {
		p.OnBehalfOf = behalf(ctx)
	}
	var reply agentwire.UnlockKeyReply
	err := c.call(ctx, onceOnly, agentwire.UnlockKey, p, &reply)
	return reply, err
}

// Lock takes back what Unlock gave: for one key, or for all of the caller's when
// name is empty.
func (c *Client) Lock(ctx context.Context, name string) error {
	return c.call(ctx, repeatable, agentwire.LockKeys, agentwire.LockKeysParameters{Name: name}, &agentwire.Empty{})
}

// Status describes the agent, its devices, and whom it takes the caller for.
func (c *Client) Status(ctx context.Context) (agentwire.GetStatusReply, error) {
	var reply agentwire.GetStatusReply
	err := c.call(ctx, repeatable, agentwire.GetStatus, agentwire.Empty{}, &reply)
	return reply, err
}

// CheckPolicy asks the agent's running policy. Root and the agent's own user may
// ask about others.
func (c *Client) CheckPolicy(ctx context.Context, p agentwire.CheckPolicyParameters) (agentwire.CheckPolicyReply, error) {
	if p.GIDs == nil {
		p.GIDs = []uint32{}
	}
	var reply agentwire.CheckPolicyReply
	err := c.call(ctx, repeatable, agentwire.CheckPolicy, p, &reply)
	return reply, err
}

// TailAudit returns the newest audit records as JSON texts, oldest first; with
// records 0 the agent's usual number.
func (c *Client) TailAudit(ctx context.Context, records int) ([]string, error) {
	var reply agentwire.TailAuditReply
	err := c.call(ctx, repeatable, agentwire.TailAudit, agentwire.TailAuditParameters{Records: records}, &reply)
	return reply.Records, err
}

// VerifyAudit has the agent walk the hash chain of its whole audit log.
func (c *Client) VerifyAudit(ctx context.Context) (agentwire.VerifyAuditReply, error) {
	var reply agentwire.VerifyAuditReply
	err := c.call(ctx, repeatable, agentwire.VerifyAudit, agentwire.Empty{}, &reply)
	return reply, err
}

// Metrics returns the agent's counters, sorted by name.
func (c *Client) Metrics(ctx context.Context) ([]metrics.Metric, error) {
	var reply agentwire.GetMetricsReply
	err := c.call(ctx, repeatable, agentwire.GetMetrics, agentwire.Empty{}, &reply)
	return reply.Metrics, err
}

// Watch calls changed for each change of a key, the policy, a lock, a device or a
// touch that a key waits for until ctx ends, the connection is lost, or changed returns an error, and
// returns the reason. It uses a connection of its own.
func (c *Client) Watch(ctx context.Context, changed func(agentwire.WatchReply) error) error {
	conn, err := dial.Agent().Connect(ctx, c.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	var own error // what changed returned, which is nobody else's to explain
	err = conn.CallMore(ctx, agentwire.Watch, agentwire.Empty{}, func(reply json.RawMessage, _ bool) error {
		var w agentwire.WatchReply
		if err := json.Unmarshal(reply, &w); err != nil {
			return err
		}
		own = changed(w)
		return own
	})
	if own != nil {
		return own
	}
	return c.explain(ctx, err)
}

func (c *Client) keyCall(ctx context.Context, r repeat, method string, in any) (agentwire.Key, error) {
	var reply agentwire.KeyReply
	err := c.call(ctx, r, method, in, &reply)
	return reply.Key, err
}
