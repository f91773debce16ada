package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"holdfast/agent/keys"
)

// ledger is what the store remembers of keys outside of their records. It is one
// file, DIR/ledger.json, in canonical form; keys are "uid/name".
type ledger struct {
	Version     int                    `json:"version"`
	Generations map[string]uint64      `json:"generations"` // the last generation written, so that an older file is noticed
	PINTries    map[string][]time.Time `json:"pinTries"`    // when PINs were tried that were not right, oldest first
}

// maxLedger is the largest ledger, in bytes: more keys than a device can serve.
const maxLedger = 4 << 20

func (k id) String() string { return strconv.FormatUint(uint64(k.owner), 10) + "/" + k.name }

func (s *Store) ledgerPath() string { return filepath.Join(s.dir, "ledger.json") }

// readLedger returns the ledger on the disk, an empty one when there is none.
func (s *Store) readLedger() (ledger, error) {
	empty := ledger{Version: version, Generations: map[string]uint64{}, PINTries: map[string][]time.Time{}}
	data, err := read(s.disk, s.ledgerPath(), maxLedger)
	if errors.Is(err, fs.ErrNotExist) {
		return empty, nil
	}
	if err != nil {
		return ledger{}, err
	}
	return parseLedger(data)
}

func parseLedger(data []byte) (ledger, error) {
	var l ledger
	if err := decode(data, &l); err != nil {
		return ledger{}, err
	}
	if l.Version != version || l.Generations == nil || l.PINTries == nil {
		return ledger{}, fmt.Errorf("version %d is not known, or a part is missing", l.Version)
	}
	return l, nil
}

// writeLedger puts the ledger in memory on the disk. A ledger that could not be
// read stays as it is. The caller holds writing.
func (s *Store) writeLedger() error {
	if s.ledgerFault != nil {
		return s.ledgerFault
	}
	data, err := encode(s.ledger)
	if err != nil {
		return err
	}
	write := create
	if exists(s.ledgerPath()) {
		write = replace
	}
	if err := write(s.disk, s.ledgerPath(), data); err != nil {
		return fmt.Errorf("%s: %w", s.ledgerPath(), err)
	}
	return nil
}

// remember notes the last generation of a key, 0 when it is gone. That it cannot
// be written takes nothing from the record, which is safe by then: an older
// file would go unnoticed, and that is all.
func (s *Store) remember(k id, generation uint64) {
	if generation == 0 {
		delete(s.ledger.Generations, k.String())
		delete(s.ledger.PINTries, k.String())
	} else if s.ledgerFault == nil {
		s.ledger.Generations[k.String()] = generation
	}
	s.writeLedger()
}

// How many wrong PINs the agent passes on to a device in which time. Devices
// lock for everybody when they see too many.
const (
	MaxPINTries = 2
	PINWindow   = time.Hour
)

// SpendPINTry counts one try of a key's PIN and returns when that is on the
// disk: call it before the device sees the PIN. It returns a pin-blocked
// [keys.Error], and counts nothing, when [MaxPINTries] were spent within
// [PINWindow]; any other error forbids the try as well.
func (s *Store) SpendPINTry(owner uint32, name string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if _, ok := s.Get(owner, name); !ok {
		return missing()
	}
	if s.ledgerFault != nil {
		return fmt.Errorf("count the PIN's tries: %w", s.ledgerFault)
	}
	now, k := s.now().UTC(), id{owner, name}
	spent := recent(s.ledger.PINTries[k.String()], now)
	s.setTries(k, spent)
	if len(spent) >= MaxPINTries {
		return &keys.Error{
			Kind:       keys.PINBlocked,
			Message:    fmt.Sprintf("%d wrong PINs for key %q within an hour", len(spent), name),
			Hint:       "wait, so that the device does not lock",
			RetryAfter: spent[0].Add(PINWindow).Sub(now),
		}
	}
	return s.changeTries(k, spent, append(slices.Clone(spent), now))
}

// ReturnPINTry takes back the newest try: the device never saw the PIN.
func (s *Store) ReturnPINTry(owner uint32, name string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := id{owner, name}
	spent := s.ledger.PINTries[k.String()]
	if len(spent) == 0 {
		return nil
	}
	return s.changeTries(k, spent, spent[:len(spent)-1])
}

// ClearPINTries forgets a key's tries: the PIN was right.
func (s *Store) ClearPINTries(owner uint32, name string) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	k := id{owner, name}
	spent := s.ledger.PINTries[k.String()]
	if len(spent) == 0 {
		return nil
	}
	return s.changeTries(k, spent, nil)
}

// changeTries writes tries in place of spent, or leaves spent.
func (s *Store) changeTries(k id, spent, tries []time.Time) error {
	s.setTries(k, tries)
	if err := s.writeLedger(); err != nil {
		s.setTries(k, spent)
		return fmt.Errorf("count the PIN's tries: %w", err)
	}
	return nil
}

func (s *Store) setTries(k id, tries []time.Time) {
	if len(tries) == 0 {
		delete(s.ledger.PINTries, k.String())
	} else {
		s.ledger.PINTries[k.String()] = tries
	}
}

// PINTries returns how many tries of a key's PIN count now.
func (s *Store) PINTries(owner uint32, name string) int {
	s.writing.Lock()
	defer s.writing.Unlock()
	return len(recent(s.ledger.PINTries[id{owner, name}.String()], s.now()))
}

// recent returns the tries that still count. One from the future was made before
// the clock was set back; it counts from now on, or it would count for ever.
func recent(tries []time.Time, now time.Time) []time.Time {
	var still []time.Time
	for _, t := range tries {
		if t.After(now) {
			t = now
		}
		if now.Sub(t) < PINWindow {
			still = append(still, t)
		}
	}
	return still
}
