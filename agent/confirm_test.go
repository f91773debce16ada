package agent_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"os"
	"strings"
	"testing"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/keys/keystest"
)

// confirmed is a rig with a user and a key that needs confirmations.
func confirmed(t *testing.T, c agentwire.Confirm, change ...func(*agentwire.CreateKeyParameters)) (*rig, *person) {
	t.Helper()
	p := newPerson()
	r := newRig(t, withPerson(p))
	change = append(change, func(p *agentwire.CreateKeyParameters) { p.Confirm = &c })
	if key := r.create("alice", keys.TLSClient, change...); key.Confirm == nil || *key.Confirm != c {
		t.Errorf("the key is shown with %+v, want %+v", key.Confirm, c)
	}
	p.none(t) // creating a key does not use it
	return r, p
}

// signFor signs as signFor does, while the test goes on.
func (r *rig) signingFor(who *agentwire.Reported) <-chan error {
	p := agentwire.SignTLSClientParameters{Key: "alice", Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client"), OnBehalfOf: who}
	return r.calling(r.t.Context(), agentwire.SignTLSClient, p)
}

// wantYes fails unless a signature for who waits for a confirmation, and gives it.
func wantYes(t *testing.T, r *rig, p *person, who *agentwire.Reported) {
	t.Helper()
	before := r.memory.Signs()
	result := r.signingFor(who)
	q := p.next(t)
	if q.what != "confirm" || q.subject.Key != "alice" || q.subject.Operation != "sign-tls-client" || q.subject.Verified != (who == nil) {
		t.Errorf("asked for %s of %+v, want the confirmation of a signature with alice", q.what, q.subject)
	}
	if by := q.subject.ReportedBy; who == nil && by != 0 || who != nil && by != int32(os.Getpid()) {
		t.Errorf("reported by %d", by)
	}
	if n := r.memory.Signs() - before; n != 0 {
		t.Errorf("the device signed %d times before the yes", n)
	}
	q.yes()
	if err := soon(t, "the signature", result); err != nil {
		t.Errorf("after the yes: %v", err)
	}
}

// wantNoQuestion fails unless a signature for who is made without a question.
func wantNoQuestion(t *testing.T, r *rig, p *person, who *agentwire.Reported) {
	t.Helper()
	if err := soon(t, "the signature", r.signingFor(who)); err != nil {
		t.Errorf("want a signature and no question: %v", err)
	}
	p.none(t)
}

// A confirmation of a certificate request does not confirm a sign-in, and the reverse.
func TestConfirmationIsForOneOperation(t *testing.T) {
	for _, c := range []agentwire.Confirm{{When: "once"}, {When: "process", Minutes: 5}} {
		r, p := confirmed(t, c)
		var k agentwire.KeyReply
		if err := r.call(agentwire.GetKey, agentwire.NameParameters{Name: "alice"}, &k); err != nil {
			t.Fatal(err)
		}
		in := agentwire.SignParameters{Key: "alice", Scheme: k.Key.Scheme, Message: requestInfo(t, k.Key.PublicKey)}
		result := r.calling(t.Context(), agentwire.SignCertificateRequest, in)
		p.next(t).yes()
		if err := soon(t, "the request's signature", result); err != nil {
			t.Fatal(err)
		}
		wantYes(t, r, p, nil)
		wantNoQuestion(t, r, p, nil)
		if err := soon(t, "the request's signature", r.calling(t.Context(), agentwire.SignCertificateRequest, in)); err != nil {
			t.Error(err)
		}
		p.none(t)
	}
}

func TestConfirmOnce(t *testing.T) {
	r, p := confirmed(t, agentwire.Confirm{When: "once"})
	other := &agentwire.Reported{UID: 7, PID: 70, Start: 700}
	wantYes(t, r, p, nil)
	wantNoQuestion(t, r, p, nil)
	wantNoQuestion(t, r, p, other)
	r.lock("alice")
	wantYes(t, r, p, other)
	wantNoQuestion(t, r, p, nil)
	r.lock("") // all of the user's keys, a key without a PIN among them
	wantYes(t, r, p, nil)
	r.agent.LockAll("test")
	wantYes(t, r, p, nil)
	r.restart()
	wantYes(t, r, p, nil)
}

func TestConfirmForEachProcess(t *testing.T) {
	r, p := confirmed(t, agentwire.Confirm{When: "process", Minutes: 5})
	one, other, again := &agentwire.Reported{UID: 7, PID: 70, Start: 700}, &agentwire.Reported{UID: 7, PID: 71, Start: 700}, &agentwire.Reported{UID: 7, PID: 70, Start: 701}
	for _, who := range []*agentwire.Reported{nil, one, other, again} {
		wantYes(t, r, p, who)
		wantNoQuestion(t, r, p, who)
	}
	wantNoQuestion(t, r, p, one)
	conn, end := r.handedOver() // another process asks, and says that it is for one
	defer end()
	result := make(chan error, 1)
	in := agentwire.SignTLSClientParameters{Key: "alice", Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client"), OnBehalfOf: one}
	go func() { result <- asKeysError(conn.Call(t.Context(), agentwire.SignTLSClient, in, nil)) }()
	p.next(t).close()
	wantKind(t, soon(t, "the answer", result), fault.ConfirmationRequired)
	r.lock("alice")
	r.agent.ForgetClosedPrompts()
	wantYes(t, r, p, nil)
}

func TestConfirmationForAProcessEnds(t *testing.T) {
	r, p := confirmed(t, agentwire.Confirm{When: "process", Minutes: 1})
	wantYes(t, r, p, nil)
	r.passTime(59 * time.Second)
	wantNoQuestion(t, r, p, nil)
	r.passTime(2 * time.Second)
	wantYes(t, r, p, nil)
}

func TestConfirmAlways(t *testing.T) {
	r, p := confirmed(t, agentwire.Confirm{When: "always"})
	wantYes(t, r, p, nil)
	wantYes(t, r, p, nil)
	// Two at once are two questions, one after the other.
	a := r.signingFor(nil)
	first := p.next(t)
	b := r.signingFor(nil)
	<-time.NewTimer(50 * time.Millisecond).C // for what must not happen: a share in the first
	p.none(t)
	first.yes()
	p.next(t).yes()
	for _, result := range []<-chan error{a, b} {
		if err := soon(t, "the signature", result); err != nil {
			t.Error(err)
		}
	}
	p.none(t)
}

// Requests for the same confirmation share one prompt.
func TestOneQuestionForAll(t *testing.T) {
	r, p := confirmed(t, agentwire.Confirm{When: "once"})
	var results []<-chan error
	for range 10 {
		results = append(results, r.signingFor(nil))
	}
	r.waitForPrompts(10)
	p.next(t).yes()
	for _, result := range results {
		if err := soon(t, "the signature", result); err != nil {
			t.Error(err)
		}
	}
	p.none(t)
}

func TestNoIsRefusal(t *testing.T) {
	r, p := confirmed(t, agentwire.Confirm{When: "once"})
	before := r.memory.Signs()
	result := r.signingFor(nil)
	p.next(t).close()
	wantKind(t, soon(t, "the answer", result), fault.ConfirmationRequired)
	wantKind(t, soon(t, "the answer", r.signingFor(nil)), fault.ConfirmationRequired) // right after: nobody is asked again
	p.none(t)
	if n := r.memory.Signs() - before; n != 0 {
		t.Errorf("the device signed %d times", n)
	}
	lines := r.auditLines()
	if last := lines[len(lines)-1]; !strings.Contains(last, `"decision":"deny"`) || !strings.Contains(last, `"outcome":"confirmation-required"`) {
		t.Errorf("the last record is %s, want the refusal", last)
	}
	got := r.metrics()
	if got["prompts_total confirm closed"].Value != 1 || got["requests_total SignTLSClient confirmation-required"].Value != 2 {
		t.Errorf("counted %v closed questions and %v refusals, want 1 and 2", got["prompts_total confirm closed"].Value, got["requests_total SignTLSClient confirmation-required"].Value)
	}
}

func TestConfirmationWithoutAPrompt(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient, func(p *agentwire.CreateKeyParameters) { p.Confirm = &agentwire.Confirm{When: "once"} })
	_, err := r.signClient("alice")
	wantKind(t, err, fault.ConfirmationRequired)
}

// When the key is locked while its prompt is open, the confirmation is valid for that
// one signature only.
func TestConfirmationEndsWithALock(t *testing.T) {
	r, p := confirmed(t, agentwire.Confirm{When: "once"})
	result := r.signingFor(nil)
	q := p.next(t)
	r.lock("")
	q.yes()
	if err := soon(t, "the signature", result); err != nil {
		t.Error(err)
	}
	wantYes(t, r, p, nil)
}

// A key with a PIN and a confirmation prompts for both, and again for both when the
// unlock has ended.
func TestPINThenConfirmation(t *testing.T) {
	r, p := confirmed(t, agentwire.Confirm{When: "once"}, withPIN)
	both := func() {
		t.Helper()
		result := r.signingFor(nil)
		q := p.next(t)
		if q.what != "pin" {
			t.Fatalf("asked for %s first", q.what)
		}
		q.pin(rightPIN)
		if q = p.next(t); q.what != "confirm" {
			t.Fatalf("asked for %s next", q.what)
		}
		q.yes()
		if err := soon(t, "the signature", result); err != nil {
			t.Error(err)
		}
	}
	both()
	wantNoQuestion(t, r, p, nil)
	r.passTime(16 * time.Minute)
	both()
}

func TestEverySigningMethodNeedsConfirmation(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p))
	always := func(p *agentwire.CreateKeyParameters) { p.Confirm = &agentwire.Confirm{When: "always"} }
	r.create("server", keys.TLSServer, always)
	key := r.create("client", keys.TLSClient, always)
	for verb, in := range map[string]any{
		agentwire.SignTLSServer:          agentwire.SignParameters{Key: "server", Scheme: key.Scheme, Message: tls13("server")},
		agentwire.SignCertificateRequest: agentwire.SignParameters{Key: "client", Scheme: key.Scheme, Message: requestInfo(t, key.PublicKey)},
		agentwire.SignTLSClient:          agentwire.SignTLSClientParameters{Key: "client", Scheme: key.Scheme, Message: tls13("client")},
	} {
		result := r.calling(t.Context(), verb, in)
		p.next(t).close()
		wantKind(t, soon(t, "the answer to "+verb, result), fault.ConfirmationRequired)
		r.agent.ForgetClosedPrompts()
		result = r.calling(t.Context(), verb, in)
		p.next(t).yes()
		if err := soon(t, "the answer to "+verb, result); err != nil {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// requestInfo returns a CertificationRequestInfo for a public key.
func requestInfo(t *testing.T, public []byte) []byte {
	t.Helper()
	signer, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: "x"}}, signer)
	if err != nil {
		t.Fatal(err)
	}
	var request struct {
		Info struct {
			Version                    int
			Subject, Public, Attribute asn1.RawValue
		}
		Algorithm, Signature asn1.RawValue
	}
	if _, err := asn1.Unmarshal(der, &request); err != nil {
		t.Fatal(err)
	}
	request.Info.Public = asn1.RawValue{FullBytes: public}
	info, err := asn1.Marshal(request.Info)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

// The touch for each signature is the confirmation of a key that wants both.
func TestTouchConfirms(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(1))
	r.createOnCard(p, "touched", agentwire.OnCard{TouchPolicy: "always", PINPolicy: "never"}, func(p *agentwire.CreateKeyParameters) { p.Confirm = &agentwire.Confirm{When: "always"} })
	result := r.signing(t.Context(), "touched")
	r.cards.WaitTouch(1)
	r.cards.Touch(1)
	if err := soon(t, "the signature", result); err != nil {
		t.Error(err)
	}
	p.none(t)
	r.createOnCard(p, "cached", agentwire.OnCard{TouchPolicy: "cached", PINPolicy: "never"}, func(p *agentwire.CreateKeyParameters) { p.Confirm = &agentwire.Confirm{When: "always"} })
	result = r.signing(t.Context(), "cached")
	p.next(t).close() // a touch that may be another signature's is none
	wantKind(t, soon(t, "the answer", result), fault.ConfirmationRequired)
}

func TestBadConfirmationsAreRefused(t *testing.T) {
	r := newRig(t)
	for _, c := range []agentwire.Confirm{{}, {When: "never"}, {When: "process"}, {When: "process", Minutes: 61}, {When: "process", Minutes: -1}, {When: "once", Minutes: 1}} {
		in := agentwire.CreateKeyParameters{Name: "alice", Purpose: "tls-client", Confirm: &c}
		wantKind(t, r.call(agentwire.CreateKey, in, nil), fault.BadRequest)
		adopt := agentwire.AdoptKeyParameters{Name: "alice", Purpose: "tls-client", File: "x", Confirm: &c}
		wantKind(t, r.call(agentwire.AdoptKey, adopt, nil), fault.BadRequest)
	}
	if n := len(r.store.List()); n != 0 {
		t.Errorf("there are %d keys", n)
	}
}

func TestAdoptedKeysAreConfirmed(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p))
	r.create("first", keys.TLSClient)
	var file agentwire.ExportKeyReply
	if err := r.call(agentwire.ExportKey, agentwire.NameParameters{Name: "first"}, &file); err != nil {
		t.Fatal(err)
	}
	if err := r.call(agentwire.DeleteKey, agentwire.NameParameters{Name: "first"}, nil); err != nil {
		t.Fatal(err)
	}
	in := agentwire.AdoptKeyParameters{Name: "alice", Purpose: "tls-client", File: file.File, Confirm: &agentwire.Confirm{When: "process", Minutes: 5}}
	if err := r.call(agentwire.AdoptKey, in, nil); err != nil {
		t.Fatal(err)
	}
	wantYes(t, r, p, nil)
	if rec, _ := r.store.Get(uint32(os.Getuid()), "alice"); rec.Confirm == nil || rec.Confirm.Minutes != 5 {
		t.Errorf("the record has %+v", rec.Confirm)
	}
}

// withCards is a change of a rig: it has cards beside its memory.
func withCards(serials ...uint32) func(*rig) {
	return func(r *rig) { r.cards = keystest.NewMemoryCards(serials...) }
}

// createOnCard makes a key with the card's PIN, and touches the card where that
// takes a touch.
func (r *rig) createOnCard(p *person, name string, on agentwire.OnCard, change ...func(*agentwire.CreateKeyParameters)) {
	r.t.Helper()
	in := agentwire.CreateKeyParameters{Name: name, Purpose: "tls-client", Backend: "piv", PIN: []byte(keystest.CardPIN), OnCard: &on}
	for _, c := range change {
		c(&in)
	}
	if on.Card == 0 {
		on.Card = 1
	}
	result := r.calling(r.t.Context(), agentwire.CreateKey, in)
	if on.TouchPolicy != "" && on.TouchPolicy != "never" {
		r.cards.WaitTouch(on.Card)
		r.cards.Touch(on.Card)
	}
	select {
	case err := <-result:
		if err != nil {
			r.t.Fatalf("create %s: %v", name, err)
		}
	case <-time.After(30 * time.Second):
		r.t.Fatalf("create %s: no answer", name)
	}
}
