package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// ledger is what the store remembers outside of the keys' records. It is one file,
// DIR/ledger.json, in canonical form. Generations are those of "uid/name"
// and, for sealed secrets, "sealed/uid/name"; PIN tries have the names that [triesOf] and [triesOfUID] give.
type ledger struct {
	Version     int                    `json:"version"`
	Generations map[string]uint64      `json:"generations"` // the last generation written, so that an older file is noticed
	PINTries    map[string][]time.Time `json:"pinTries"`    // when PINs were tried that were not right, oldest first
}

// maxLedger is the largest ledger, in bytes: more keys than a device can serve.
const maxLedger = 4 << 20

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

// writeLedger puts the ledger in memory on the disk, without the PIN tries that no
// longer count. A ledger that could not be read stays as it is, and so does one
// whose successor could not be read again. The caller holds writing.
func (s *Store) writeLedger() error {
	if s.ledgerFault != nil {
		return s.ledgerFault
	}
	now := s.now().UTC()
	for name, tries := range s.ledger.PINTries {
		s.setTries(name, recent(tries, now))
	}
	data, err := encode(s.ledger)
	if err != nil {
		return err
	}
	if len(data) > maxLedger {
		return fmt.Errorf("%s: larger than %d bytes", s.ledgerPath(), maxLedger)
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

// remember notes the last generation of a record, 0 when it is gone. That it cannot
// be written takes nothing from the record, which is safe by then: an older
// file would go unnoticed, and that is all. What the file still says of a key that
// is gone stays in memory too, so that a new key of that name starts above it and
// is not taken for an older file after a restart.
func (s *Store) remember(name string, generation uint64) {
	if s.ledgerFault != nil {
		return
	}
	before, known := s.ledger.Generations[name]
	if generation == 0 {
		delete(s.ledger.Generations, name)
	} else {
		s.ledger.Generations[name] = generation
	}
	if err := s.writeLedger(); err != nil && generation == 0 && known {
		s.ledger.Generations[name] = before
	}
}
