// Package card does the work of holdfast-piv on one card: it opens the reader, checks
// that the right card is in it, and runs the requests of package piv/wire.
//
// Start at [Session.Do]. piv-go speaks to the card. Our own commands on the same
// connection do what piv-go does not export, and carry every PIN, so that a PIN is a
// slice that can be cleared and never a string.
//
// A call into a card that does not answer never returns: the user of a Session must
// be able to end its process. piv-go panics on some malformed answers; [Session.Do]
// reports those as errors, and its process should end as well.
package card

import (
	"cmp"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-piv/piv-go/v2/piv"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/holdfast-piv/pcsc"
	"holdfast/piv/holdfast-piv/vault"
	"holdfast/piv/wire"
)

// A Session works with the card in one reader. It is not safe for concurrent use.
type Session struct {
	vault *vault.Vault
	log   *slog.Logger

	connecting *connecting // nil while no attempt to connect is in progress

	reader   string
	known    []pcsc.Reader // as of the last connection
	yk       *piv.YubiKey  // nil while no connection is open
	raw      *pcsc.Card    // the same connection
	firmware piv.Version
	serial   uint32

	// Of this connection:
	opened    time.Time         //
	presented bool              // a PIN, PUK or management key was sent
	verified  bool              // and the card has accepted the PIN
	counted   bool              // the tries left were read, and no other program has spent any since
	proven    map[string][]byte // compared public keys, by slot
	refusals  map[byte]int      // tries left after the last refusal, by reference

	sent   bool   // a PIN or PUK of the current request has reached the card
	left   string // the slot in which the current request has made a key; "" when it has made none
	broken bool
}

// New returns a session without a connection. It keeps PINs in v and writes the causes
// of errors, which hold no secrets, to log.
func New(v *vault.Vault, log *slog.Logger) *Session { return &Session{vault: v, log: log} }

// Broken reports that the process should end after its reply: piv-go holds a connection
// to pcscd that it cannot release, or has panicked.
func (s *Session) Broken() bool { return s.broken }

// operations are the operations on an open card with the requested serial number.
var operations = map[wire.Op]func(*Session, *wire.Request, *wire.Reply) error{
	wire.Inspect:     (*Session).inspect,
	wire.Slot:        (*Session).slot,
	wire.Generate:    (*Session).generate,
	wire.Sign:        (*Session).sign,
	wire.Unlock:      (*Session).unlock,
	wire.Certificate: (*Session).certificate,
	wire.SetUp:       (*Session).setUp,
	wire.ChangePIN:   (*Session).changePIN,
	wire.ChangePUK:   (*Session).changePUK,
	wire.Unblock:     (*Session).unblock,
}

// Do runs one request and returns the reply to it. The caller wipes the request.
func (s *Session) Do(r *wire.Request) *wire.Reply {
	reply := &wire.Reply{ID: r.ID}
	s.sent, s.left = false, ""
	if err := s.run(r, reply); err != nil {
		named := wire.FromError(s.fault(err))
		s.log.Info("request failed", "op", r.Op, "kind", named.Kind, "error", err)
		reply = &wire.Reply{ID: r.ID, Error: named}
		reply.Error.Unsent = !s.sent
		if s.left != "" {
			reply.Error.Leaves("a new key is", s.left, r.Serial)
		}
	}
	return reply
}

// run recovers from piv-go's panics, after which the connection's state is unknown.
func (s *Session) run(r *wire.Request, reply *wire.Reply) (err error) {
	defer func() {
		if p := recover(); p != nil {
			s.broken = true
			err = &fault.Error{Kind: fault.DeviceFailed, Message: fmt.Sprintf("the card's answer is malformed: %v", p)}
		}
	}()
	wait := cmp.Or(r.Wait, usualWait)
	if r.Op == wire.Identify {
		return s.identify(r.Reader, wait, reply)
	}
	do := operations[r.Op]
	if do == nil {
		return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("operation %.20q is not known", r.Op)}
	}
	if err := wellFormed(r); err != nil {
		return err
	}
	if err := s.open(r.Reader, r.Serial, wait); err != nil {
		return err
	}
	if err := do(s, r, reply); err != nil {
		return err
	}
	if s.sent && r.Op != wire.Sign && r.Op != wire.ChangePUK {
		reply.Recounted = true
		reply.Tries, _ = s.tries(refPIN) // unknown after an error: the request has succeeded
	}
	return nil
}

// usualWait is how long a request without a time of its own waits for another program's
// transaction.
const usualWait = 3 * time.Second

// wellFormed rejects a PIN or PUK that no card can have. A longer one would otherwise
// be cut to the card's size.
func wellFormed(r *wire.Request) error {
	for _, secret := range [][]byte{r.PIN, r.PUK, r.Old, r.OldPUK, r.New} {
		if len(secret) == 0 {
			continue // the operation checks whether it may be missing
		}
		if err := keys.CheckCardPIN(secret); err != nil {
			return err
		}
	}
	return nil
}

// open connects to the card in the reader, unless it is connected already, and checks
// that it is the card with the serial number.
func (s *Session) open(reader string, serial uint32, wait time.Duration) error {
	s.yield()
	if s.yk != nil && s.reader != reader {
		s.Release()
	}
	if s.yk == nil {
		if err := s.connect(reader, wait); err != nil {
			return err
		}
	}
	if s.serial != serial {
		there := s.serial
		s.Release()
		return &fault.Error{Kind: fault.KeyMismatch,
			Message: fmt.Sprintf("the key is on card %d, and in the reader is card %d", serial, there),
			Next:    fault.Next{Do: fault.InsertCard, Card: serial}}
	}
	return nil
}

// managementAID is an application that every YubiKey has.
var managementAID = []byte{0xa0, 0x00, 0x00, 0x05, 0x27, 0x47, 0x11, 0x17}

// Release closes the connection, so that other programs can use the card. First it
// makes the card forget the PIN and the management key, which would stay proved for them,
// by selecting another application or else by a reset. Until that is done, the
// transaction keeps their commands out.
func (s *Session) Release() {
	if s.yk == nil {
		return
	}
	if s.presented {
		if _, err := send(s.raw, insSelect, 0x04, 0, managementAID); err != nil {
			_ = s.raw.Reset() // a card that is gone has forgotten
		}
	}
	s.drop()
}

// drop closes the connection without that.
func (s *Session) drop() {
	if s.yk != nil {
		_ = s.yk.Close() // the card may be gone
		s.raw.Close()
	}
	s.yk, s.raw, s.serial, s.proven, s.refusals = nil, nil, 0, nil, nil
	s.presented, s.verified, s.counted = false, false, false
}

// version returns the firmware's version as people write it.
func (s *Session) version() string {
	return fmt.Sprintf("%d.%d.%d", s.firmware.Major, s.firmware.Minor, s.firmware.Patch)
}

// since reports whether the firmware is of the version or a later one.
func (s *Session) since(major, minor, patch int) bool {
	f := s.firmware
	return cmp.Or(cmp.Compare(f.Major, major), cmp.Compare(f.Minor, minor), cmp.Compare(f.Patch, patch)) >= 0
}
