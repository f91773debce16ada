package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"

	"holdfast/internal/fault"
)

// A shelf keeps the records of one kind, one file for each at ROOT/<uid of the
// owner>/<name>.json. The caller of a method that changes files holds
// [Store].writing.
type shelf[R record[R]] struct {
	store  *Store
	root   string
	kind   string // in messages: "key"
	prefix string // of the records' names in the ledger
	keys   bool   // holds keys: its directory is made by Open
	parse  func(data []byte) (R, error)

	records map[id]R // guarded by Store.mu
}

// A record can be kept by a shelf. The zero value stands for no record.
type record[R any] interface {
	id() id
	generation() uint64
	canonical() (R, []byte, error)
}

// id identifies a record of one kind: names are unique per owner.
type id struct {
	owner uint32
	name  string
}

func (k id) String() string { return strconv.FormatUint(uint64(k.owner), 10) + "/" + k.name }

func (h *shelf[R]) path(k id) string {
	return filepath.Join(h.root, strconv.FormatUint(uint64(k.owner), 10), k.name+".json")
}

// ledgerName returns the name of k's generation in the ledger.
func (h *shelf[R]) ledgerName(k id) string { return h.prefix + k.String() }

// get returns the record of k, which shares its memory with the shelf's.
func (h *shelf[R]) get(k id) (R, bool) {
	h.store.mu.RLock()
	defer h.store.mu.RUnlock()
	r, ok := h.records[k]
	return r, ok
}

// count returns how many records owner has.
func (h *shelf[R]) count(owner uint32) int {
	h.store.mu.RLock()
	defer h.store.mu.RUnlock()
	n := 0
	for k := range h.records {
		if k.owner == owner {
			n++
		}
	}
	return n
}

// next returns the generation of the next record of k, which replaces current.
func (h *shelf[R]) next(k id, current R) uint64 {
	return max(current.generation(), h.store.ledger.Generations[h.ledgerName(k)]) + 1
}

// create stores a record under a name that is free.
func (h *shelf[R]) create(r R) error {
	k := r.id()
	r, data, err := r.canonical()
	if err != nil {
		return unfit(err)
	}
	if _, taken := h.get(k); taken {
		return h.taken(k)
	}
	path := h.path(k)
	if exists(path) || exists(sibling(path, outgoing)) {
		return h.setAside(k)
	}
	if !h.keys {
		err = h.store.makeDirectory(h.root)
	}
	if err == nil {
		err = h.store.makeDirectory(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("make the owner's directory: %w", err)
	}
	return h.settle(k, create(h.store.disk, path, data), r)
}

func (h *shelf[R]) taken(k id) error {
	return &fault.Error{Kind: fault.BadRequest, Message: fmt.Sprintf("%s %q already exists", h.kind, k.name)}
}

// setAside is the error for a name whose file cannot be used.
func (h *shelf[R]) setAside(k id) error {
	return &fault.Error{
		Kind:    fault.BadRequest,
		Message: fmt.Sprintf("a file that cannot be used has the place of %s %q", h.kind, k.name),
		Hint:    "holdfast doctor says what is wrong with it; move it away or repair it",
	}
}

// replace stores a record in place of the loaded one of the same name.
func (h *shelf[R]) replace(r R) error {
	k := r.id()
	r, data, err := r.canonical()
	if err != nil {
		return unfit(err)
	}
	if err := h.untouched(k); err != nil {
		return err
	}
	return h.settle(k, replace(h.store.disk, h.path(k), data), r)
}

// remove deletes the file of a loaded record.
func (h *shelf[R]) remove(k id) error {
	if err := h.untouched(k); err != nil {
		return err
	}
	var none R
	return h.settle(k, discard(h.store.disk, h.path(k)), none)
}

func unfit(err error) error {
	if e, ok := fault.AsError(err); ok {
		return e
	}
	return &fault.Error{Kind: fault.BadRequest, Message: "the key's record is not valid", Err: err}
}

// untouched fails when the file is no longer the one that was loaded: another
// program changed it on purpose.
func (h *shelf[R]) untouched(k id) error {
	current, _ := h.get(k)
	want, err := encode(current)
	if err != nil {
		return err
	}
	got, err := read(h.store.disk, h.path(k), MaxRecord)
	if err != nil {
		return fmt.Errorf("read %s: %w", h.path(k), err)
	}
	if !bytes.Equal(got, want) {
		return fmt.Errorf("%s was changed by another program: reload first", h.path(k))
	}
	return nil
}

// settle makes memory follow the disk after a change that ended with err and that
// was meant to leave r, or no record when r is the zero value.
func (h *shelf[R]) settle(k id, err error, r R) error {
	if err != nil {
		h.reread(k)
		return fmt.Errorf("%s: %w", h.path(k), err)
	}
	h.keep(k, r)
	h.store.remember(h.ledgerName(k), r.generation())
	return nil
}

// reread loads the file again after a change that failed, because the change may
// not have been undone. A record that cannot be read now stays as it was loaded.
func (h *shelf[R]) reread(k id) {
	data, err := read(h.store.disk, h.path(k), MaxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		var none R
		h.keep(k, none)
	}
	if err != nil {
		return
	}
	if r, err := h.parse(data); err == nil {
		h.keep(k, r)
	}
}

func (h *shelf[R]) keep(k id, r R) {
	h.store.mu.Lock()
	defer h.store.mu.Unlock()
	if r.generation() == 0 {
		delete(h.records, k)
	} else {
		h.records[k] = r
	}
}

// parseRecord reads the canonical form of v, of at most [MaxRecord] bytes, and
// checks it. device points to v's member that a backend wrote, which is kept
// without the indentation of the file.
func parseRecord(data []byte, v interface{ check() error }, device *json.RawMessage) error {
	if len(data) > MaxRecord {
		return fmt.Errorf("larger than %d bytes", MaxRecord)
	}
	if err := decode(data, v); err != nil {
		return err
	}
	if err := v.check(); err != nil {
		return err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, *device); err != nil {
		return err
	}
	*device = compact.Bytes()
	return nil
}

// canonical encodes r and parses it again, so that memory holds what a restart
// would read.
func canonical[R any](r R, parse func([]byte) (R, error)) (R, []byte, error) {
	data, err := encode(r)
	if err != nil {
		var none R
		return none, nil, err
	}
	same, err := parse(data)
	return same, data, err
}
