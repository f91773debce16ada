package card

import (
	"errors"
	"fmt"
	"time"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/fault"
	"holdfast/piv/holdfast-piv/pcsc"
)

// connect opens the card in the reader, whichever it is, and begins a transaction. It
// waits that long for another program's transaction to end.
func (s *Session) connect(reader string, wait time.Duration) error {
	raw, err := s.acquire(reader, wait)
	if gone := s.arrived(reader); err == nil && gone != nil {
		raw.Close()
		err = gone
	}
	if err != nil {
		return err
	}
	err = raw.Lend(func() (err error) {
		s.yk, err = piv.Open("") // Lend chooses the reader
		return err
	})
	if err != nil {
		// Unless it has closed the card's connection, piv-go keeps its own to pcscd.
		s.broken = !errors.Is(raw.State(), pcsc.InvalidHandle)
		raw.Close()
		return notPIV(reader, err)
	}
	s.raw, s.firmware, s.proven, s.opened = raw, s.yk.Version(), map[string][]byte{}, time.Now()
	s.refusals = map[byte]int{}
	if s.serial, err = s.yk.Serial(); err != nil {
		s.drop()
		return notPIV(reader, err)
	}
	return nil
}

// A connecting is an attempt to connect that may wait for another program's transaction.
// Only the end of the process ends that wait, so that a request which has waited long
// enough leaves the attempt to the next request.
type connecting struct {
	reader string
	card   *pcsc.Card // with err, once done receives
	err    error
	done   chan struct{} // receives when a request can have the card, and is closed when none came for it
}

func startConnecting(reader string) *connecting {
	c := &connecting{reader: reader, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		c.card, c.err = pcsc.Connect(reader)
		select {
		case c.done <- struct{}{}:
		case <-time.After(unclaimed):
			if c.err == nil {
				c.card.Close()
			}
		}
	}()
	return c
}

// unclaimed is how long a connection that no request waits for stays open.
const unclaimed = 100 * time.Millisecond

// acquire connects to the card in the reader. It fails with a busy error when another
// program's transaction lasts longer than wait. A card that hangs is no such case: then
// acquire never returns.
func (s *Session) acquire(reader string, wait time.Duration) (*pcsc.Card, error) {
	late := time.After(wait)
	for {
		if s.connecting == nil || s.connecting.reader != reader {
			s.connecting = startConnecting(reader)
		}
		c := s.connecting
		select {
		case _, ok := <-c.done:
			s.connecting = nil
			if ok {
				return c.card, c.err
			}
		case <-late:
			if shared(reader) {
				return nil, errOccupied
			}
			late = nil
		}
	}
}

// shared reports whether another program is connected to the card in the reader, while
// this one has no connection.
func shared(reader string) bool {
	now, err := pcsc.Readers()
	return err == nil && find(now, reader).InUse
}

// errOccupied is the error while another program's transaction lasts.
var errOccupied = &fault.Error{Kind: fault.Busy, RetryAfter: time.Second,
	Message: "another program is working with the card", Hint: "try again when it is done"}

// longestBurst is how long requests follow each other in one transaction while other
// programs are connected to the card, and turn is the pause after it, in which pcscd,
// which looks every 100 ms, lets another one begin.
const (
	longestBurst = time.Second
	turn         = 150 * time.Millisecond
)

// yield ends a transaction that has lasted long enough, and lets other programs that are
// connected to the card begin one.
func (s *Session) yield() {
	if s.yk == nil || time.Since(s.opened) < longestBurst {
		return
	}
	s.Release()
	if shared(s.reader) {
		time.Sleep(turn)
	}
}

// arrived locks the keys when the reader is another one, or a card was removed from
// it, since the last connection: that card may be anywhere by now.
func (s *Session) arrived(reader string) error {
	now, err := pcsc.Readers()
	if err != nil {
		return err
	}
	was, is := find(s.known, s.reader), find(now, reader)
	s.known, s.reader = now, reader
	if !is.Present || was.Name != is.Name || was.Changes != is.Changes {
		s.vault.Lock("")
	}
	if is.Name == "" {
		return pcsc.UnknownReader
	}
	return nil
}

// find returns the reader of that name, or the zero value.
func find(all []pcsc.Reader, name string) pcsc.Reader {
	for _, r := range all {
		if r.Name == name {
			return r
		}
	}
	return pcsc.Reader{}
}

// notPIV translates the error of a card that is no PIV card. It does not change other
// errors.
func notPIV(reader string, err error) error {
	status, _ := statusOf(err)
	if status != statusNotFound && status != statusNoInstruction && status != statusNoClass {
		return err
	}
	return &fault.Error{Kind: fault.DeviceAbsent, Err: err,
		Message: fmt.Sprintf("the card in the reader %q is no PIV card that can be used here", reader),
		Hint:    "holdfast uses YubiKeys from version 4 on, with their PIV application enabled"}
}
