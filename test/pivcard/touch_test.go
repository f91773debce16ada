package pivcard

import (
	"testing"
	"time"
)

// touching returns a session with a card that has a key of this touch policy.
func touching(t *testing.T, policy byte, timeout time.Duration) (*Card, *session) {
	c := NewCard(Options{TouchTimeout: timeout})
	c.SetKey(0x9e, Key{Algorithm: P256, Touch: policy})
	return c, direct(t, c)
}

func TestTouch(t *testing.T) {
	c, s := touching(t, TouchAlways, time.Minute)
	if c.Touch() {
		t.Error("a touch was welcome before the card asked")
	}
	for range 2 {
		done := make(chan bool)
		go func() { <-c.Blinks(); done <- c.Touch() }()
		if !signedBy(c.Public(0x9e), s.sign(ok, 0x9e, P256, digest[:])) {
			t.Error("the signature does not verify")
		}
		if !<-done {
			t.Error("the card blinked and did not want the touch")
		}
	}
}

func TestTouchNeverComes(t *testing.T) {
	c, s := touching(t, TouchAlways, 20*time.Millisecond)
	begun := time.Now()
	s.sign(notSatisfied, 0x9e, P256, digest[:])
	if d := time.Since(begun); d < c.TouchTimeout {
		t.Errorf("refused after %v, want %v", d, c.TouchTimeout)
	}
	if NewCard(Options{}).TouchTimeout != 15*time.Second {
		t.Error("a card as it comes has another touch timeout than 15 s")
	}
	s.want(ok, GetVersion, 0, 0)
}

// TestTouchCached counts how often the card asks for two signatures in a row.
func TestTouchCached(t *testing.T) {
	for policy, want := range map[byte]int{TouchAlways: 2, TouchCached: 1, TouchNever: 0} {
		c, s := touching(t, policy, time.Minute)
		c.TouchAfter(time.Nanosecond)
		s.sign(ok, 0x9e, P256, digest[:])
		s.sign(ok, 0x9e, P256, digest[:])
		if got := len(c.Blinks()); got != want {
			t.Errorf("policy %d: the card asked %d times, want %d", policy, got, want)
		}
	}
}

// TestTouchServesOneCommand lets a touched command fail: the touch is used up.
func TestTouchServesOneCommand(t *testing.T) {
	c, s := touching(t, TouchAlways, 10*time.Millisecond)
	c.TouchAfter(time.Nanosecond)
	s.sign(wrongData, 0x9e, P256, make([]byte, 100))
	c.TouchAfter(0)
	s.sign(notSatisfied, 0x9e, P256, digest[:])
}

// TestTouchForManagementKey sets a management key that wants a touch.
func TestTouchForManagementKey(t *testing.T) {
	c := NewCard(Options{TouchTimeout: 10 * time.Millisecond})
	s := direct(t, c)
	s.manage(ok, algTDES, DefaultManagementKey())
	s.want(ok, SetManagementKey, 0xff, 0xfe, append([]byte{algTDES, slotManagement, 24}, DefaultManagementKey()...)...)
	s.manage(notSatisfied, algTDES, DefaultManagementKey())
	c.TouchAfter(time.Nanosecond)
	s.manage(ok, algTDES, DefaultManagementKey())
}
