package client

import (
	"context"
	"crypto/rand"
	"encoding/json"

	"holdfast/internal/agentwire"
	"holdfast/internal/dial"
)

// Keys lists the keys that the caller may see. With all set, it lists those of every
// user, where policy allows that.
func (c *Client) Keys(ctx context.Context, all bool) ([]KeyInfo, error) {
	var reply agentwire.ListKeysReply
	err := c.call(ctx, repeatable, agentwire.ListKeys, agentwire.ListKeysParameters{All: all}, &reply)
	return reply.Keys, err
}

// GetKey describes one key. [Client.Key] returns it as a signer.
func (c *Client) GetKey(ctx context.Context, name string) (KeyInfo, error) {
	return c.keyCall(ctx, repeatable, agentwire.GetKey, agentwire.NameParameters{Name: name})
}

// CreateKey makes a key inside the device and returns its description. An RSA key can
// take a minute. When p has no request id it gets one, so that a retry after a lost
// connection does not make a second key. A call with a card's PIN is not retried.
func (c *Client) CreateKey(ctx context.Context, p CreateKeyParameters) (KeyInfo, error) {
	if p.RequestID == "" {
		p.RequestID = rand.Text()
	}
	again := repeatable
	if p.OnCard != nil && len(p.PIN) > 0 {
		again = onceOnly // the first call may have used up a try of the card's PIN
	}
	return c.keyCall(ctx, again, agentwire.CreateKey, p)
}

// DeleteKey deletes a key, which cannot be undone.
func (c *Client) DeleteKey(ctx context.Context, name string) error {
	return c.call(ctx, onceOnly, agentwire.DeleteKey, agentwire.NameParameters{Name: name}, &agentwire.Empty{})
}

// ExportKey returns a key in its device's exchange format (for a TPM a TSS2
// PRIVATE KEY, PEM), which is useless without the device.
func (c *Client) ExportKey(ctx context.Context, name string) (string, error) {
	var reply agentwire.ExportKeyReply
	err := c.call(ctx, repeatable, agentwire.ExportKey, agentwire.NameParameters{Name: name}, &reply)
	return reply.File, err
}

// AdoptKey makes a key record from a file in the device's exchange format, or for a
// key that is on a card already.
func (c *Client) AdoptKey(ctx context.Context, p AdoptKeyParameters) (KeyInfo, error) {
	if p.RequestID == "" {
		p.RequestID = rand.Text()
	}
	return c.keyCall(ctx, repeatable, agentwire.AdoptKey, p)
}

// BindKey sets the servers that a tls-client key may be used against.
func (c *Client) BindKey(ctx context.Context, name string, servers []Server) (KeyInfo, error) {
	return c.keyCall(ctx, repeatable, agentwire.BindKey, agentwire.BindKeyParameters{Name: name, Servers: servers})
}

// InstallCertificate stores a certificate chain, DER, leaf first, in the key's
// record. The leaf must be for this key.
func (c *Client) InstallCertificate(ctx context.Context, name string, chain [][]byte) (KeyInfo, error) {
	return c.keyCall(ctx, repeatable, agentwire.InstallCertificate, agentwire.InstallCertificateParameters{Name: name, Chain: chain})
}

// Unlock proves a PIN to the device. Without a PIN the agent prompts the user of this
// process, or of the process that p or else ctx (see [OnBehalfOf]) reports. It is
// never retried once the agent may have read it, since a wrong PIN uses up a try.
func (c *Client) Unlock(ctx context.Context, p UnlockKeyParameters) (UnlockKeyReply, error) {
	if p.OnBehalfOf == nil {
		p.OnBehalfOf = behalf(ctx)
	}
	call := c.call
	if p.PIN == nil { // the agent asks
		call = c.exchange
	}
	var reply UnlockKeyReply
	err := call(ctx, onceOnly, agentwire.UnlockKey, p, &reply)
	return reply, err
}

// Lock locks one key, or all keys of the caller when name is empty.
func (c *Client) Lock(ctx context.Context, name string) error {
	return c.call(ctx, repeatable, agentwire.LockKeys, agentwire.LockKeysParameters{Name: name}, &agentwire.Empty{})
}

// Status describes the agent, its devices, and the caller as the agent identified it.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var reply Status
	err := c.call(ctx, repeatable, agentwire.GetStatus, agentwire.Empty{}, &reply)
	return reply, err
}

// CheckPolicy asks the agent's running policy. Root and the agent's own user may
// ask about others.
func (c *Client) CheckPolicy(ctx context.Context, p CheckPolicyParameters) (CheckPolicyReply, error) {
	if p.GIDs == nil {
		p.GIDs = []uint32{}
	}
	var reply CheckPolicyReply
	err := c.call(ctx, repeatable, agentwire.CheckPolicy, p, &reply)
	return reply, err
}

// TailAudit returns the newest audit records as JSON texts, oldest first. With records
// 0 the agent chooses how many.
func (c *Client) TailAudit(ctx context.Context, records int) ([]string, error) {
	var reply agentwire.TailAuditReply
	err := c.call(ctx, repeatable, agentwire.TailAudit, agentwire.TailAuditParameters{Records: records}, &reply)
	return reply.Records, err
}

// VerifyAudit has the agent verify the hash chain of its whole audit log.
func (c *Client) VerifyAudit(ctx context.Context) (AuditVerification, error) {
	var reply AuditVerification
	err := c.call(ctx, repeatable, agentwire.VerifyAudit, agentwire.Empty{}, &reply)
	return reply, err
}

// Metrics returns the agent's counters, sorted by name.
func (c *Client) Metrics(ctx context.Context) ([]Metric, error) {
	var reply agentwire.GetMetricsReply
	err := c.call(ctx, repeatable, agentwire.GetMetrics, agentwire.Empty{}, &reply)
	return reply.Metrics, err
}

// Watch calls changed for each change of a key, the policy, a lock or a device, and
// for each touch that a key waits for. It ends when ctx ends, the connection is lost,
// or changed returns an error, and returns the reason. It uses a connection of its
// own.
func (c *Client) Watch(ctx context.Context, changed func(Event) error) error {
	conn, err := dial.Agent().Connect(ctx, c.socket)
	if err != nil {
		return err
	}
	defer conn.Close()
	var own error // the error of changed, which is returned as it is
	err = conn.CallMore(ctx, agentwire.Watch, agentwire.Empty{}, func(reply json.RawMessage, _ bool) error {
		var w Event
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

func (c *Client) keyCall(ctx context.Context, r repeat, method string, in any) (KeyInfo, error) {
	var reply agentwire.KeyReply
	err := c.call(ctx, r, method, in, &reply)
	return reply.Key, err
}
