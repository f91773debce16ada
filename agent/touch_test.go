package agent_test

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"holdfast/agent/prompt"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/internal/keys/keystest"
	"holdfast/internal/policy"
	"holdfast/test/pace"
)

// watching returns what Watch says, from now on.
func (r *rig) watching(t *testing.T) <-chan agentwire.WatchReply {
	t.Helper()
	events := make(chan agentwire.WatchReply, 64)
	c, before := r.dial(), r.agent.Watchers()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go c.CallMore(ctx, agentwire.Watch, agentwire.Empty{}, func(raw json.RawMessage, _ bool) error {
		var e agentwire.WatchReply
		err := json.Unmarshal(raw, &e)
		events <- e
		return err
	})
	for deadline := time.Now().Add(30 * time.Second); r.agent.Watchers() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody watches")
		}
	}
	return events
}

func wantEvent(t *testing.T, events <-chan agentwire.WatchReply, what, name, state string) {
	t.Helper()
	if got, want := soon(t, "an event", events), (agentwire.WatchReply{What: what, Name: name, State: state}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// touchRig is a rig with a key that wants a touch for each signature.
func touchRig(t *testing.T) (*rig, *person) {
	t.Helper()
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(1))
	r.createOnCard(p, "touched", agentwire.OnCard{TouchPolicy: "always", PINPolicy: "never"})
	q := soon(t, "the notice", p.touches) // of the trial signature
	if q.subject.Operation != "create" || q.subject.Key != "touched" || q.subject.Device != "card 1" {
		t.Errorf("the notice is about %+v, want the making of touched on card 1", q.subject)
	}
	soon(t, "the end of the notice", q.gone)
	return r, p
}

func TestTouchIsShownAndPublished(t *testing.T) {
	r, p := touchRig(t)
	events := r.watching(t)
	result := r.signing(t.Context(), "touched")
	q := soon(t, "the notice", p.touches)
	if s := q.subject; s.Key != "touched" || s.Operation != "sign-tls-client" || s.Device != "card 1" || !s.Verified {
		t.Errorf("the notice is about %+v", s)
	}
	wantEvent(t, events, "touch", "touched", "wanted")
	r.cards.Touch(1)
	wantEvent(t, events, "touch", "touched", "done")
	if err := soon(t, "the signature", result); err != nil {
		t.Error(err)
	}
	soon(t, "the end of the notice", q.gone)
	if n := r.metrics()["touches_total ok"].Value; n != 1 {
		t.Errorf("%v touches are counted, want 1", n)
	}
}

// A touch that comes at once is not announced.
func TestQuickTouchIsNotTold(t *testing.T) {
	r, p := touchRig(t)
	events, quick := r.watching(t), false
	for tries := 0; !quick; tries++ { // until the machine was quick enough for the test to say something
		if tries == 60 {
			t.Fatal("the machine is too slow for this test")
		}
		began := time.Now()
		result := r.signing(t.Context(), "touched")
		r.cards.WaitTouch(1)
		r.cards.Touch(1)
		if err := soon(t, "the signature", result); err != nil {
			t.Error(err)
		}
		soon(t, "the end of the notice", soon(t, "the notice", p.touches).gone)
		if quick = time.Since(began) < prompt.TouchDelay; !quick {
			events = r.watching(t) // what the slow touch was told is not of interest
		}
	}
	if err := r.agent.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantEvent(t, events, "policy", "", "")
}

func TestTouchThatDoesNotCome(t *testing.T) {
	r, p := touchRig(t)
	events := r.watching(t)
	result := r.signing(t.Context(), "touched")
	wantEvent(t, events, "touch", "touched", "wanted")
	r.cards.NoTouch(1)
	wantKind(t, soon(t, "the answer", result), fault.TouchTimeout)
	wantEvent(t, events, "touch", "touched", "done")
	soon(t, "the end of the notice", soon(t, "the notice", p.touches).gone)
	if n := r.metrics()["touches_total touch-timeout"].Value; n != 1 {
		t.Errorf("%v touches that did not come are counted, want 1", n)
	}
}

// A request that waits for its turn gets no notice: the card waits for another touch.
func TestNoNoticeInTheQueue(t *testing.T) {
	r, p := touchRig(t)
	first := r.signing(t.Context(), "touched")
	q := soon(t, "the notice", p.touches)
	second := r.signing(t.Context(), "touched")
	r.waitForMetric("queue_waiting piv", 1)
	select {
	case <-p.touches:
		t.Error("a notice for a request that waits in the queue")
	default:
	}
	r.cards.Touch(1)
	if err := soon(t, "the first", first); err != nil {
		t.Error(err)
	}
	soon(t, "the end of the notice", q.gone)
	soon(t, "the second notice", p.touches)
	r.cards.WaitTouch(1)
	r.cards.Touch(1)
	if err := soon(t, "the second", second); err != nil {
		t.Error(err)
	}
}

// Only a caller that may list a key sees its touches.
func TestTouchEventsNeedListPermission(t *testing.T) {
	r, _ := touchRig(t)
	r.policy = func() (*policy.Policy, error) {
		return policy.Parse("policy.yaml", []byte("version: 1\nrules:\n- deny: [list]\n  anyone: true\n- allow: [all]\n  uids: [0]\n  owner: self\n- allow: [status]\n  uids: [0]\n"))
	}
	if err := r.agent.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	events := r.watching(t)
	result := r.signing(t.Context(), "touched")
	r.cards.WaitTouch(1)
	<-time.NewTimer(prompt.TouchDelay + 100*time.Millisecond).C // until it was announced
	r.cards.Touch(1)
	if err := soon(t, "the signature", result); err != nil {
		t.Error(err)
	}
	if n := r.metrics()["touches_total ok"].Value; n != 1 {
		t.Fatalf("%v touches were waited for, want 1", n)
	}
	r.cards.Remove(1)
	wantEvent(t, events, "device", "piv", "absent") // and nothing before
}

// While one card waits for a touch, another one signs, and what is on no card.
func TestCardsWorkSideBySide(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(1, 2))
	r.createOnCard(p, "touched", agentwire.OnCard{Card: 1, TouchPolicy: "always", PINPolicy: "never"})
	r.createOnCard(p, "quick", agentwire.OnCard{Card: 2, PINPolicy: "never"})
	r.create("plain", keys.TLSClient)
	result := r.signing(t.Context(), "touched")
	r.cards.WaitTouch(1)
	for _, key := range []string{"quick", "plain", "quick"} {
		if _, err := r.signClient(key); err != nil {
			t.Errorf("%s: %v", key, err)
		}
	}
	if n := r.agent.Lanes("piv"); n != 2 {
		t.Errorf("%d queues for two cards", n)
	}
	if err := r.agent.Alive(); err != nil {
		t.Error(err)
	}
	r.cards.Touch(1)
	if err := soon(t, "the signature", result); err != nil {
		t.Error(err)
	}
}

// The keys on a card that is pulled are locked, and their locks are announced. Keys on
// another card stay unlocked.
func TestPulledCardIsLocked(t *testing.T) {
	p := newPerson()
	r := newRig(t, withPerson(p), withCards(1, 2))
	r.createOnCard(p, "a", agentwire.OnCard{Card: 1})
	r.createOnCard(p, "b", agentwire.OnCard{Card: 2})
	r.createOnCard(p, "c", agentwire.OnCard{Card: 1, PINPolicy: "never"}, func(p *agentwire.CreateKeyParameters) { p.Confirm = &agentwire.Confirm{When: "once"} })
	for _, key := range []string{"a", "b"} {
		if err := r.call(agentwire.UnlockKey, agentwire.UnlockKeyParameters{Name: key, PIN: []byte(keystest.CardPIN)}, nil); err != nil {
			t.Fatal(err)
		}
	}
	result := r.signing(t.Context(), "c")
	p.next(t).yes()
	if err := soon(t, "the signature", result); err != nil {
		t.Fatal(err)
	}
	events := r.watching(t)
	r.cards.Remove(1)
	got := map[agentwire.WatchReply]bool{}
	for range 3 {
		got[soon(t, "an event", events)] = true
	}
	for _, want := range []agentwire.WatchReply{{What: "lock", Name: "a"}, {What: "lock", Name: "c"}, {What: "device", Name: "piv", State: "absent"}} {
		if !got[want] {
			t.Errorf("no %+v among %+v", want, got)
		}
	}
	if n := r.agent.Lanes("piv"); n != 1 {
		t.Errorf("%d queues, want that of the card that is there", n)
	}
	if _, err := r.signClient("b"); err != nil {
		t.Errorf("on the other card: %v", err)
	}
	result = r.signing(t.Context(), "c") // whose yes is gone
	p.next(t).close()
	wantKind(t, soon(t, "the answer", result), fault.ConfirmationRequired)
}

func TestStatusShowsEachCard(t *testing.T) {
	r := newRig(t, withCards(1, 2))
	var reply agentwire.GetStatusReply
	if err := r.call(agentwire.GetStatus, agentwire.Empty{}, &reply); err != nil {
		t.Fatal(err)
	}
	if len(reply.Devices) != 3 || reply.Devices[0].Backend != "memory" || reply.Devices[1].Backend != "piv" || reply.Devices[1].Device == reply.Devices[2].Device {
		t.Errorf("got the devices %+v, want the memory and two cards", reply.Devices)
	}
	r.cards.Remove(1)
	r.cards.Remove(2)
	if err := r.call(agentwire.GetStatus, agentwire.Empty{}, &reply); err != nil {
		t.Fatal(err)
	}
	if len(reply.Devices) != 2 || reply.Devices[1].State != "absent" {
		t.Errorf("without cards: got %+v, want the backend itself, absent", reply.Devices)
	}
	r.cards.Insert(2)
	if err := r.call(agentwire.GetStatus, agentwire.Empty{}, &reply); err != nil {
		t.Fatal(err)
	}
	if len(reply.Devices) != 2 || reply.Devices[1].State != "ready" {
		t.Errorf("with a card again: got %+v", reply.Devices)
	}
}

// A card that is removed during work keeps its queue until no caller uses it, and the
// next work finds a new one.
func TestQueueOfAPulledCardEnds(t *testing.T) {
	r, _ := touchRig(t)
	result := r.signing(t.Context(), "touched")
	r.cards.WaitTouch(1)
	r.cards.Remove(1)
	wantKind(t, soon(t, "the answer", result), fault.DeviceAbsent)
	if n := r.agent.Lanes("piv"); n != 0 {
		t.Errorf("%d queues for no card", n)
	}
	_, err := r.signClient("touched")
	wantKind(t, err, fault.DeviceAbsent)
	r.cards.Insert(1)
	result = r.signing(t.Context(), "touched")
	r.cards.WaitTouch(1)
	r.cards.Touch(1)
	if err := soon(t, "the signature", result); err != nil {
		t.Error(err)
	}
}

// A stop while a card waits for a touch takes no longer than it may.
func TestStopDoesNotWaitForATouch(t *testing.T) {
	r, _ := touchRig(t)
	result := r.signing(t.Context(), "touched")
	r.cards.WaitTouch(1)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if err := r.agent.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); pace.Over(t, took, 3*time.Second) {
		t.Errorf("the stop took %v", took)
	}
	if err := soon(t, "the answer", result); err == nil {
		t.Error("signed")
	}
}

// A lock that changes nothing is not announced, and LockAll announces a lock of
// everything before the lock of each key.
func TestLockEventsComeOnceAndInOrder(t *testing.T) {
	r, p := locked(t)
	result := r.signing(t.Context(), "alice")
	p.next(t).pin(rightPIN)
	if err := soon(t, "the signature", result); err != nil {
		t.Fatal(err)
	}
	events, before := r.watching(t), len(r.auditLines())
	r.lock("alice")
	for range 60 {
		r.lock("alice") // which is locked: what it signed in for may go on
		r.lock("")
	}
	if n := len(r.auditLines()) - before; n != 1 {
		t.Errorf("%d records of one lock", n)
	}
	wantEvent(t, events, "lock", "alice", "")
	for range 30 / 2 { // and no more, however often
		wantEvent(t, events, "lock", "alice", "")
		wantEvent(t, events, "lock", "", "")
	}
	result = r.signing(t.Context(), "alice")
	p.next(t).pin(rightPIN)
	if err := soon(t, "the signature", result); err != nil {
		t.Fatal(err)
	}
	r.agent.LockAll("test")
	wantEvent(t, events, "unlock", "alice", "")
	wantEvent(t, events, "lock", "", "")
	wantEvent(t, events, "lock", "alice", "")
}

// The last event of a watcher that lagged is a lock of everything.
func TestLastWordToASlowWatcher(t *testing.T) {
	r := newRig(t)
	c := r.dial()
	stuck, reading := make(chan struct{}), make(chan struct{})
	var last agentwire.WatchReply
	ended := make(chan error, 1)
	before, once := r.agent.Watchers(), sync.OnceFunc(func() { close(reading); <-stuck })
	go func() {
		ended <- c.CallMore(t.Context(), agentwire.Watch, agentwire.Empty{}, func(raw json.RawMessage, _ bool) error {
			once()
			return json.Unmarshal(raw, &last)
		})
	}()
	for deadline := time.Now().Add(30 * time.Second); r.agent.Watchers() == before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody watches")
		}
	}
	for r.agent.Watchers() != before { // until the watcher was dropped
		r.agent.PublishPolicy()
	}
	<-reading
	close(stuck)
	if err := soon(t, "the end", ended); err == nil {
		t.Error("the watch ended well")
	}
	if last != (agentwire.WatchReply{What: "lock"}) {
		t.Errorf("the last word is %+v, want a lock of everything", last)
	}
}
