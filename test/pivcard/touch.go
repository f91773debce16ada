package pivcard

import "time"

// touchWanted is no status of a card: the command is to wait for a finger.
const touchWanted status = 0

// touchCache is how long a touch serves keys with the policy "cached".
const touchCache = 15 * time.Second

// touch is the metal contact and its light.
type touch struct {
	touched  time.Time     // the last touch
	once     bool          // touched for the command that is being executed
	waiting  command       // what waits for a touch
	blinking bool          // the card asks for one
	pressed  chan struct{} // a finger
	blinks   chan struct{} // one for each time the light went on
	finger   time.Duration // touches by itself after that; 0 is never
}

func newTouch() touch {
	return touch{pressed: make(chan struct{}, 1), blinks: make(chan struct{}, 1024)}
}

// Touch touches the card and reports whether it had been asking for it. A
// touch that nothing waits for has no effect.
func (c *Card) Touch() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.blinking {
		return false
	}
	c.blinking = false
	c.pressed <- struct{}{}
	return true
}

// TouchAfter puts a finger on the card that touches it d after it begins to
// ask, from now on; 0 takes the finger away.
func (c *Card) TouchAfter(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.finger = d
}

// Blinks has a value for each time that the card begins to ask for a touch.
func (c *Card) Blinks() <-chan struct{} { return c.blinks }

// touchedFor reports whether a touch serves the policy: that for which the
// command has waited, or a recent one.
func (c *Card) touchedFor(policy byte) bool {
	return c.once || policy == TouchCached && time.Since(c.touched) < touchCache
}

// awaitTouch lets the light blink until the card is touched (true), or its
// timeout ends or it leaves the reader.
func (c *Card) awaitTouch(gone <-chan struct{}) bool {
	c.mu.Lock()
	finger := c.finger
	c.blinking = true
	c.mu.Unlock()
	select {
	case c.blinks <- struct{}{}:
	default: // nobody reads them
	}
	// One timer: of two that had both run out, either could seem the first.
	wait, touched := c.TouchTimeout, false
	reaches := 0 < finger && finger < wait
	if reaches {
		wait = finger
	}
	select {
	case <-c.pressed:
		touched = true
	case <-time.After(wait):
		touched = reaches
	case <-gone:
	}
	return c.endTouch(touched)
}

func (c *Card) endTouch(touched bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.blinking = false
	select {
	case <-c.pressed: // in the moment the wait ended
		touched = true
	default:
	}
	if touched {
		c.touched, c.once = time.Now(), true
	}
	return touched
}
