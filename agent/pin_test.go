package agent_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/policy"
	"holdfast/test/pace"
)

// locked is a rig with a user and a key that wants a PIN.
func locked(t *testing.T, change ...func(*rig)) (*rig, *person) {
	t.Helper()
	p := newPerson()
	r := newRig(t, append([]func(*rig){withPerson(p)}, change...)...)
	r.create("alice", keys.TLSClient, withPIN)
	return r, p
}

func TestLockedKeyAsksForItsPIN(t *testing.T) {
	r, p := locked(t)
	result := r.signing(t.Context(), "alice")
	q := p.next(t)
	want := q.subject
	want.UID, want.PID, want.Verified = uint32(os.Getuid()), int32(os.Getpid()), true
	want.Key, want.Purpose, want.Operation, want.Device = "alice", "tls-client", "sign-tls-client", "memory"
	want.Tries, want.Again = 2, ""
	if q.subject != want || q.subject.Start == 0 {
		t.Errorf("the prompt is about %+v, want %+v", q.subject, want)
	}
	q.pin(rightPIN)
	if err := soon(t, "the signature", result); err != nil {
		t.Fatal(err)
	}
	if _, err := r.signClient("alice"); err != nil {
		t.Errorf("unlocked: %v", err)
	}
	p.none(t)
	var key agentwire.KeyReply
	if err := r.call(agentwire.GetKey, agentwire.NameParameters{Name: "alice"}, &key); err != nil {
		t.Fatal(err)
	}
	if until := key.Key.UnlockedUntil; until == nil || time.Until(*until) > 15*time.Minute || time.Until(*until) < 14*time.Minute {
		t.Errorf("unlocked until %v, want for 15 minutes", until)
	}
	r.lock("alice")
	result = r.signing(t.Context(), "alice")
	p.next(t).pin(rightPIN)
	if err := soon(t, "the signature", result); err != nil {
		t.Error(err)
	}
}

// The unlocking has a decision and an outcome of its own, before the signature's,
// and no record holds the PIN.
func TestPromptedUnlockIsRecorded(t *testing.T) {
	r, p := locked(t)
	before := len(r.auditLines())
	result := r.signing(t.Context(), "alice")
	p.next(t).pin(rightPIN)
	if err := soon(t, "the signature", result); err != nil {
		t.Fatal(err)
	}
	lines := r.auditLines()[before:]
	want := [][]string{
		{`"decision"`, `"operation":"unlock"`, `"decision":"allow"`, `"pin":"prompt"`},
		{`"outcome"`, `"operation":"unlock"`, `"outcome":"ok"`},
		{`"decision"`, `"operation":"sign-tls-client"`, `"decision":"allow"`},
		{`"outcome"`, `"operation":"sign-tls-client"`, `"outcome":"ok"`},
	}
	if len(lines) != len(want) {
		t.Fatalf("got %d records, want %d:\n%s", len(lines), len(want), strings.Join(lines, "\n"))
	}
	for i, words := range want {
		for _, w := range words {
			if !strings.Contains(lines[i], w) || strings.Contains(lines[i], rightPIN) {
				t.Errorf("record %d is %s, want %s in it and no PIN", i, lines[i], w)
			}
		}
	}
	if got := r.metrics(); got["prompts_total pin answered"].Value != 1 || got["pin_tries_total memory ok"].Value != 1 || got["prompts_open"].Value != 0 {
		t.Errorf("the metrics count %v answered prompts and %v tries, and %v open", got["prompts_total pin answered"].Value, got["pin_tries_total memory ok"].Value, got["prompts_open"].Value)
	}
}

// No copy of a PIN that went through the agent stays in its memory.
func TestPINsAreWiped(t *testing.T) {
	r, p := locked(t)
	for _, pin := range []string{"wrong-pin", rightPIN} {
		result := r.signing(t.Context(), "alice")
		p.next(t).pin(pin)
		if pin != rightPIN {
			p.next(t).close()
		}
		soon(t, "the answer", result)
		r.agent.ForgetClosedPrompts()
		for whose, b := range map[string][]byte{"the person's": p.given, "the device's": r.memory.lent} {
			if len(b) != len(pin) || strings.Trim(string(b), "\x00") != "" {
				t.Errorf("%s copy of %q is %q", whose, pin, b)
			}
		}
	}
}

func TestOnePromptForAll(t *testing.T) {
	r, p := locked(t)
	var results []<-chan error
	for range 20 {
		results = append(results, r.signing(t.Context(), "alice"))
	}
	results = append(results, r.unlocking(t.Context(), agentwire.UnlockKeyParameters{Name: "alice", Seconds: 60}))
	r.waitForPrompts(21)
	if n := r.metrics()["prompts_open"].Value; n != 1 {
		t.Errorf("%v prompts are open, want 1", n)
	}
	p.next(t).pin(rightPIN)
	for _, result := range results {
		if err := soon(t, "the answer", result); err != nil {
			t.Error(err)
		}
	}
	p.none(t)
	if n := r.metrics()["pin_tries_total memory ok"].Value; n != 1 {
		t.Errorf("the PIN was sent %v times, want once", n)
	}
}

// Closing a prompt answers every request that waits for it, and rejects requests that
// come right after. A user who asks for an unlock gets another prompt.
func TestClosedPromptAnswersAll(t *testing.T) {
	r, p := locked(t)
	var results []<-chan error
	for range 10 {
		results = append(results, r.signing(t.Context(), "alice"))
	}
	r.waitForPrompts(10)
	p.next(t).close()
	for _, result := range results {
		wantKind(t, soon(t, "the answer", result), fault.PINRequired)
	}
	_, err := r.signClient("alice")
	wantKind(t, err, fault.PINRequired)
	if err == nil || !strings.Contains(err.Error(), "a moment ago") {
		t.Errorf("right after: %v, want a word about the prompt that was closed", err)
	}
	err = <-r.unlocking(t.Context(), agentwire.UnlockKeyParameters{Name: "alice", OnBehalfOf: &agentwire.Reported{UID: 7, PID: 8, Start: 9}})
	wantKind(t, err, fault.PINRequired)
	p.none(t)
	result := r.unlocking(t.Context(), agentwire.UnlockKeyParameters{Name: "alice"})
	p.next(t).pin(rightPIN)
	if err := soon(t, "the unlock", result); err != nil {
		t.Error(err)
	}
	if n := r.metrics()["prompts_total pin closed"].Value; n != 1 {
		t.Errorf("%v closed prompts are counted, want 1", n)
	}
}

func TestWrongPINIsAskedAgain(t *testing.T) {
	r, p := locked(t)
	result := r.signing(t.Context(), "alice")
	p.next(t).pin("wrong-pin")
	q := p.next(t)
	if q.subject.Again != "wrong PIN" || q.subject.Tries != 1 {
		t.Errorf("asked again with %q and %d tries, want wrong PIN and 1", q.subject.Again, q.subject.Tries)
	}
	q.pin("12") // no PIN at all costs no try
	if q = p.next(t); !strings.Contains(q.subject.Again, "4 to 32") || q.subject.Tries != 1 {
		t.Errorf("asked again with %q and %d tries, want what a PIN is and 1", q.subject.Again, q.subject.Tries)
	}
	q.pin(rightPIN)
	if err := soon(t, "the signature", result); err != nil {
		t.Error(err)
	}
}

// When no tries are left, no prompt is shown.
func TestNoPromptWithoutTries(t *testing.T) {
	r, p := locked(t)
	result := r.signing(t.Context(), "alice")
	p.next(t).pin("wrong-pin")
	p.next(t).pin("wrong-pin")
	wantKind(t, soon(t, "the answer", result), fault.PINBlocked)
	_, err := r.signClient("alice")
	wantKind(t, err, fault.PINBlocked)
	p.none(t)
	if n := r.store.PINTriesLeft(uint32(os.Getuid()), []byte("another")); n != 2 {
		t.Errorf("another key has %d tries left, want 2", n)
	}
}

func TestLeavingCallerWithdrawsThePrompt(t *testing.T) {
	r, p := locked(t)
	ctx, leave := context.WithCancel(t.Context())
	result := r.signing(ctx, "alice")
	q := p.next(t)
	leave()
	soon(t, "the end of the prompt", q.gone)
	if err := soon(t, "the answer", result); err == nil {
		t.Error("signed")
	}
	r.waitForMetric("prompts_total pin withdrawn", 1)
	result = r.signing(t.Context(), "alice")
	p.next(t).pin(rightPIN)
	if err := soon(t, "the signature", result); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// The request that opened the prompt may leave: the prompt stays for the others, and the
// PIN is tried in the name of one of them.
func TestPromptStaysForTheOthers(t *testing.T) {
	r, p := locked(t)
	ctx, leave := context.WithCancel(t.Context())
	first := r.signing(ctx, "alice")
	q := p.next(t)
	second := r.signing(t.Context(), "alice")
	r.waitForPrompts(2)
	leave()
	if err := soon(t, "the first", first); err == nil {
		t.Error("the request that left was answered")
	}
	r.waitForPrompts(1)
	q.pin(rightPIN)
	if err := soon(t, "the second", second); err != nil {
		t.Fatal(err)
	}
	p.none(t)
	lines := strings.Join(r.auditLines(), "\n")
	if strings.Count(lines, `"pin":"prompt"`) != 2 {
		t.Errorf("the unlocking is not recorded once:\n%s", lines)
	}
}

// When the user of one caller cannot be reached, the user of another may be.
func TestUnreachablePersonIsOneCallersAlone(t *testing.T) {
	r, p := locked(t)
	first := r.signing(t.Context(), "alice")
	q := p.next(t)
	second := r.signing(t.Context(), "alice")
	r.waitForPrompts(2)
	q.notReached()
	wantKind(t, soon(t, "the first", first), fault.PINRequired)
	p.next(t).pin(rightPIN)
	if err := soon(t, "the second", second); err != nil {
		t.Error(err)
	}
}

func TestUnansweredPromptIsForAll(t *testing.T) {
	r, p := locked(t)
	first := r.signing(t.Context(), "alice")
	second := r.signing(t.Context(), "alice")
	r.waitForPrompts(2)
	p.next(t).notAnswered()
	wantKind(t, soon(t, "the first", first), fault.PINRequired)
	wantKind(t, soon(t, "the second", second), fault.PINRequired)
	p.none(t)
	if n := r.metrics()["prompts_total pin timed-out"].Value; n != 1 {
		t.Errorf("%v prompts timed out, want 1", n)
	}
}

// A request that times out at a prompt returns that a user is needed, and not an error
// about the device.
func TestPromptEndsWithTheRequest(t *testing.T) {
	r, p := locked(t, func(r *rig) { r.options.Limits.Request = 100 * time.Millisecond })
	_, err := r.signClient("alice")
	wantKind(t, err, fault.PINRequired)
	soon(t, "the end of the prompt", p.next(t).gone)
	r.waitForMetric("prompts_total pin timed-out", 1)
}

// While a user thinks, other keys sign, keys are locked, and the agent answers.
func TestNothingWaitsForThePerson(t *testing.T) {
	r, p := locked(t)
	r.create("other", keys.TLSClient)
	r.create("open", keys.TLSClient, withPIN)
	if err := r.call(agentwire.UnlockKey, agentwire.UnlockKeyParameters{Name: "open", PIN: []byte(rightPIN)}, nil); err != nil {
		t.Fatal(err)
	}
	result := r.signing(t.Context(), "alice")
	q := p.next(t)
	for _, key := range []string{"other", "open"} {
		if _, err := r.signClient(key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if n := r.metrics()["queue_waiting memory"].Value; n != 0 {
		t.Errorf("%v requests wait for the device, want none", n)
	}
	r.lock("")
	r.lock("alice")
	var status agentwire.GetStatusReply
	if err := r.call(agentwire.GetStatus, agentwire.Empty{}, &status); err != nil {
		t.Error(err)
	}
	if err := r.agent.Alive(); err != nil {
		t.Error(err)
	}
	q.pin(rightPIN) // after the lock: the person means it
	if err := soon(t, "the signature", result); err != nil {
		t.Error(err)
	}
}

// When policy forbids the unlock while the prompt is open, the PIN is not tried.
func TestPolicyChangesWhileThePersonThinks(t *testing.T) {
	r, p := locked(t)
	result := r.signing(t.Context(), "alice")
	q := p.next(t)
	rules := fmt.Sprintf("version: 1\nrules:\n- deny: [unlock]\n  anyone: true\n- allow: [all]\n  uids: [%d]\n  owner: self\n- allow: [status]\n  uids: [%[1]d]\n", os.Getuid())
	r.policy = func() (*policy.Policy, error) { return policy.Parse("policy.yaml", []byte(rules)) }
	if err := r.agent.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	q.pin(rightPIN)
	wantKind(t, soon(t, "the answer", result), fault.Denied)
	_, err := r.signClient("alice") // a caller that may not unlock gets no prompt
	wantKind(t, err, fault.PINRequired)
	p.none(t)
	if n := r.metrics()["pin_tries_total memory ok"].Value; n != 0 {
		t.Errorf("%v PINs were tried", n)
	}
}

func TestShutdownTakesPromptsAway(t *testing.T) {
	r, p := locked(t)
	result := r.signing(t.Context(), "alice")
	q := p.next(t)
	began := time.Now()
	r.restart()
	if took := time.Since(began); pace.Over(t, took, 2*time.Second) {
		t.Errorf("the agent took %v to stop", took)
	}
	soon(t, "the end of the prompt", q.gone)
	if err := soon(t, "the answer", result); err == nil {
		t.Error("signed")
	}
}

// The device or the process beside it may have started again and lost the unlock. Then a
// person is asked once, and no more when the device still says that the key is locked.
func TestDeviceThatForgotIsUnlockedOnce(t *testing.T) {
	r, p := locked(t)
	result := r.signing(t.Context(), "alice")
	p.next(t).pin(rightPIN)
	if err := soon(t, "the signature", result); err != nil {
		t.Fatal(err)
	}
	r.memory.Lock(nil)
	result = r.signing(t.Context(), "alice")
	p.next(t).pin(rightPIN)
	if err := soon(t, "the signature", result); err != nil {
		t.Fatal(err)
	}
	var signs atomic.Int32
	r.memory.sign = func() error {
		signs.Add(1)
		return &fault.Error{Kind: fault.PINRequired, Message: "the key is locked"}
	}
	result = r.signing(t.Context(), "alice")
	p.next(t).pin(rightPIN)
	wantKind(t, soon(t, "the answer", result), fault.PINRequired)
	p.none(t)
	if signs.Load() != 2 {
		t.Errorf("the device was asked to sign %d times, want twice", signs.Load())
	}
}

func TestUnlockWithoutPINAsks(t *testing.T) {
	r, p := locked(t)
	reported := &agentwire.Reported{UID: 4242, PID: 77, Start: 99}
	result := r.unlocking(t.Context(), agentwire.UnlockKeyParameters{Name: "alice", Seconds: 60, OnBehalfOf: reported})
	q := p.next(t)
	if s := q.subject; s.UID != 4242 || s.PID != 77 || s.Start != 99 || s.Verified || s.Operation != "unlock" {
		t.Errorf("the prompt is about %+v, want the process that was reported, as such", s)
	}
	q.pin(rightPIN)
	if err := soon(t, "the unlock", result); err != nil {
		t.Fatal(err)
	}
	lines := r.auditLines()
	for _, line := range lines[len(lines)-2:] {
		if !strings.Contains(line, `"reported":{"uid":4242,"pid":77,"start":99}`) || !strings.Contains(line, `"unlock"`) {
			t.Errorf("the record %s does not say for whom", line)
		}
	}
	var key agentwire.KeyReply
	if err := r.call(agentwire.GetKey, agentwire.NameParameters{Name: "alice"}, &key); err != nil {
		t.Fatal(err)
	}
	if until := key.Key.UnlockedUntil; until == nil || time.Until(*until) > time.Minute {
		t.Errorf("unlocked until %v, want for a minute", until)
	}
	bad := r.unlocking(t.Context(), agentwire.UnlockKeyParameters{Name: "alice", OnBehalfOf: &agentwire.Reported{UID: 1, PID: 0, Start: 1}})
	wantKind(t, soon(t, "the answer", bad), fault.BadRequest)
}

// The process that a broker reports is shown in prompts for signatures as well.
func TestPromptIsForTheReportedProcess(t *testing.T) {
	r, p := locked(t)
	in := agentwire.SignTLSClientParameters{
		Key: "alice", Scheme: string(keys.ECDSAP256SHA256), Message: tls13("client"), OnBehalfOf: &agentwire.Reported{UID: 4242, PID: 77, Start: 99},
	}
	result := r.calling(t.Context(), agentwire.SignTLSClient, in)
	q := p.next(t)
	if s := q.subject; s.UID != 4242 || s.PID != 77 || s.Start != 99 || s.Verified {
		t.Errorf("the prompt is about %+v, want the process that was reported, as such", s)
	}
	q.pin(rightPIN)
	if err := soon(t, "the signature", result); err != nil {
		t.Error(err)
	}
}

func TestNoPromptCanBeShown(t *testing.T) {
	r := newRig(t)
	r.create("alice", keys.TLSClient, withPIN)
	before := r.metrics()["device_seconds memory"].Count
	_, err := r.signClient("alice")
	wantKind(t, err, fault.PINRequired)
	if e, ok := fault.AsError(err); !ok || e.Advice() != "holdfast unlock alice" {
		t.Errorf("got %#v, want the command that unlocks", err)
	}
	wantKind(t, r.call(agentwire.UnlockKey, agentwire.UnlockKeyParameters{Name: "alice"}, nil), fault.PINRequired)
	if after := r.metrics()["device_seconds memory"].Count; after != before {
		t.Errorf("the device worked %d times for nothing", after-before)
	}
}

// A key that is locked while its PIN is being proved stays locked.
func TestLockWinsOverAnUnlockUnderWay(t *testing.T) {
	r, p := locked(t)
	for name, prove := range map[string]func() <-chan error{
		"prompt": func() <-chan error {
			result := r.signing(t.Context(), "alice")
			q := p.next(t)
			release := r.memory.Block()
			q.pin(rightPIN)
			r.memory.WaitBlocked()
			r.lock("")
			release()
			return result
		},
		"verb": func() <-chan error {
			release := r.memory.Block()
			result := r.unlocking(t.Context(), agentwire.UnlockKeyParameters{Name: "alice", PIN: []byte(rightPIN)})
			r.memory.WaitBlocked()
			r.agent.LockAll("test")
			release()
			return result
		},
	} {
		wantKind(t, soon(t, "the answer to "+name, prove()), fault.PINRequired)
		p.none(t)
		var key agentwire.KeyReply
		if err := r.call(agentwire.GetKey, agentwire.NameParameters{Name: "alice"}, &key); err != nil || key.Key.UnlockedUntil != nil {
			t.Errorf("%s: unlocked until %v (%v), want locked", name, key.Key.UnlockedUntil, err)
		}
		r.memory.sign = func() error { t.Error("the device was asked to sign"); return nil }
		result := r.signing(t.Context(), "alice") // must ask
		p.next(t).notAnswered()
		wantKind(t, soon(t, "the answer", result), fault.PINRequired)
		r.memory.sign = nil
	}
}
