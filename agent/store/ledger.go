package store

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// ledger holds the store's facts outside of the records. It is one file,
// DIR/ledger.json, in canonical form. Generations have the names "uid/name" and, for
// sealed secrets, "sealed/uid/name"; PIN tries have the names of [triesOf] and
// [triesOfUID].
type ledger struct {
	Version     int                    `json:"version"`
	Generations map[string]uint64      `json:"generations"` // the last generation written, to detect older files
	PINTries    map[string][]time.Time `json:"pinTries"`    // the times of wrong PINs, oldest first
}

// maxLedger is the largest ledger, in bytes: enough for more keys than a device can
// serve.
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

// writeLedger writes the ledger to the disk, without the PIN tries that no longer
// count. It does not overwrite a ledger that could not be read, and keeps the old
// file when the new one cannot be read back. The caller holds writing.
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

// remember stores the last generation of a record, 0 when the record was deleted. A
// failed write is not an error: the record itself is safe already, and only an older
// file would go unnoticed. When the entry of a deleted record cannot be removed from
// the file, it stays in memory too, so that a new record of that name starts above it
// and is not rejected as an older file after a restart.
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
