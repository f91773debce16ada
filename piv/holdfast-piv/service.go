package main

import (
	"errors"
	"io"
	"sync"
	"time"

	"holdfast/piv/holdfast-piv/card"
	"holdfast/piv/holdfast-piv/vault"
	"holdfast/piv/wire"
)

// idle is how long the transaction lasts after the last request: another request often
// follows at once, and other programs wait.
const idle = 200 * time.Millisecond

// A service answers requests. One goroutine reads them and answers those that need no
// card; another one works with the card. Neither waits for the other, so that the end
// of the input ends the process also while the card hangs.
type service struct {
	in    io.Reader
	vault *vault.Vault
	card  *card.Session // the worker's

	orphaned <-chan struct{} // closed when the agent has ended

	writing sync.Mutex
	out     io.Writer
}

// errOrder is the error for a backend that does not wait for its reply.
var errOrder = errors.New("a request came before the last one was answered")

// moment is how long the card may take to forget the PIN after the input has ended.
// pcscd resets the card in any case when this process ends.
const moment = 500 * time.Millisecond

// run returns nil when the agent has ended, and otherwise the failure that ends the
// process.
func (s *service) run() error {
	work, locked, stop := make(chan *wire.Request), make(chan struct{}, 1), make(chan struct{})
	busy := make(chan struct{}, 1) // holds one token while a request is in flight
	over, worked := make(chan error, 1), make(chan error, 1)
	go func() { over <- s.read(work, locked, busy) }()
	go func() { worked <- s.work(work, locked, stop, busy) }()
	var err error
	select {
	case err = <-worked:
		return err
	case err = <-over:
	case <-s.orphaned:
	}
	s.vault.Lock("")
	close(stop)
	if len(busy) == 0 {
		select {
		case <-worked:
		case <-time.After(moment):
		}
	}
	return err
}

// read passes requests to the worker, except for Lock, which must not wait for a
// card.
func (s *service) read(work chan<- *wire.Request, locked chan<- struct{}, busy chan<- struct{}) error {
	for {
		r := new(wire.Request)
		if err := wire.Read(s.in, r); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if r.Op == wire.Lock {
			s.vault.Lock(r.Slot)
			select {
			case locked <- struct{}{}:
			default:
			}
			if err := s.reply(&wire.Reply{ID: r.ID}); err != nil {
				return err
			}
			continue
		}
		select {
		case busy <- struct{}{}:
			work <- r
		default:
			return errOrder
		}
	}
}

// work runs requests. It releases the card when there are none for a while, after a
// lock, and when stop is closed.
func (s *service) work(work <-chan *wire.Request, locked, stop, busy <-chan struct{}) error {
	quiet := time.NewTimer(idle)
	for {
		select {
		case r := <-work:
			reply := s.do(r)
			r.Wipe()
			<-busy
			if err := s.reply(reply); err != nil {
				return err
			}
			if s.card.Broken() {
				return errors.New("the connection to the card is beyond repair")
			}
			quiet.Reset(idle)
		case <-quiet.C:
			s.card.Release()
		case <-locked:
			s.card.Release()
		case <-stop:
			s.card.Release()
			return nil
		}
	}
}

func (s *service) do(r *wire.Request) *wire.Reply {
	if r.Op == wire.Readers {
		return watch(r)
	}
	return s.card.Do(r)
}

func (s *service) reply(reply *wire.Reply) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	return wire.Write(s.out, reply)
}
