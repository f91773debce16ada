// Package audit keeps the agent's log of decisions: one JSON object per line,
// each with the SHA-256 of the line before it, so that a line which was edited,
// removed or moved breaks the chain.
//
// Start at [Open] and [Log.Append] for the writer, at [Log.Verify] for the reader. A
// record is in the file when Append returns, so a crash of the agent loses no record.
// It is on the disk at most a second later, so a power cut may lose the last second
// and no more. When a record cannot be written, the agent must reject the request that
// the record is about.
//
// Once a second and when the log is closed, the log's head is written to an anchor
// file beside the log. With the two, a reader finds:
//
//   - a line edited, removed, moved or repeated anywhere, except as below;
//   - a tail cut off, or the last line edited, up to the last anchor. Records
//     newer than the anchor, at most about a second's worth, can be cut off or
//     edited unnoticed once the agent has stopped; a running agent notices before
//     the next record and writes no more;
//   - a missing anchor.
//
// It does not protect against root and other programs of the agent's uid: they can
// write both files, and make a new log with an anchor that fits it. Only a copy of an
// earlier head kept elsewhere reveals that.
package audit

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/guard"
)

// Log is an open log. Its methods are safe for concurrent use.
type Log struct {
	path string
	file *os.File
	fd   int // of file, for calls that must not change its mode

	dirty   chan struct{} // holds a token when there are records to flush
	closing chan struct{}
	close   sync.Once     // of closing
	flushed chan struct{} // closed when the flusher has ended
	saved   anchor        // the anchor on the disk; the flusher's own while it runs

	mu    sync.Mutex // guards the fields below and the end of the file
	head  anchor     // the last record
	fault error      // the reason why no record may be appended any more
	stale error      // the last failure to write the anchor, which is retried
}

// Open opens the log at path for appending and makes it when it is missing. It
// rejects a symbolic link, a file of another owner or with a mode other than 0600, a
// directory in which others may write, and a log that another process has open.
//
// The chain continues after the last good record. When that is not the end of the
// file, or differs from the anchor, Open appends a record of kind "break": see [Break].
// It moves a torn end to a file of its own beside the log.
func Open(path string) (*Log, error) {
	l := &Log{path: path, dirty: make(chan struct{}, 1), closing: make(chan struct{}), flushed: make(chan struct{})}
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("audit log %s: %w", path, err)
	}
	go l.flusher()
	return l, nil
}

func (l *Log) open() error {
	if err := checkDirectory(filepath.Dir(l.path)); err != nil {
		return err
	}
	const flags = os.O_RDWR | os.O_APPEND | os.O_CREATE | syscall.O_NOFOLLOW | syscall.O_NONBLOCK
	f, err := os.OpenFile(l.path, flags, 0o600)
	if errors.Is(err, syscall.ELOOP) {
		return errors.New("a symbolic link")
	}
	if err != nil {
		return err
	}
	l.file, l.fd = f, int(f.Fd())
	if err := l.begin(); err != nil {
		f.Close()
		return err
	}
	return nil
}

// begin checks and locks the opened file, finds the end of its chain and anchors it.
func (l *Log) begin() error {
	info, err := l.file.Stat()
	if err != nil {
		return err
	}
	if err := guard.CheckOwn(info); err != nil {
		return err
	}
	if err := syscall.Flock(l.fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return fmt.Errorf("another process has it open: %w", err)
	}
	breaks, err := l.resume()
	if err != nil {
		return err
	}
	for _, b := range breaks {
		if err := l.Append(b.record()); err != nil {
			return err
		}
	}
	return l.flush()
}

// checkDirectory rejects a directory in which another user could replace the log.
func checkDirectory(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("directory %s is owned by another user", dir)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("directory %s has mode %#o: others may write in it", dir, info.Mode().Perm())
	}
	return nil
}

// Append writes one record and returns when it is in the file. It sets Time, Seq
// and Prev, and shortens texts to 512 bytes. After an error, an internal
// [fault.Error], the record is not in the log, and the request that it is about must be
// rejected. Append works again once a full disk has room; a log that another program
// changed stays closed until it is opened again.
func (l *Log) Append(r Record) error {
	r.fit()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.append(&r); err != nil {
		return &fault.Error{
			Kind:    fault.Internal,
			Message: "the audit log cannot be written",
			Hint:    "holdfast status says why",
			Err:     err,
		}
	}
	select {
	case l.dirty <- struct{}{}:
	default:
	}
	return nil
}

func (l *Log) append(r *Record) error {
	if err := l.untouched(); err != nil {
		return err
	}
	r.Time, r.Seq, r.Prev = time.Now().UTC(), l.head.Seq+1, l.head.Head
	line, err := encode(r)
	if err != nil {
		return err
	}
	sum := hash(sha256.Sum256(line))
	if _, err := l.file.Write(append(line, '\n')); err != nil {
		if undo := l.file.Truncate(l.head.Bytes); undo != nil {
			l.fault = fmt.Errorf("remove half a record: %w", undo)
		}
		return err
	}
	l.head = anchor{Seq: r.Seq, Head: sum.String(), Bytes: l.head.Bytes + int64(len(line)) + 1}
	return nil
}

// untouched closes the log permanently when another program changed its file. The
// caller holds mu.
func (l *Log) untouched() error {
	if l.fault != nil {
		return l.fault
	}
	var stat syscall.Stat_t
	switch err := syscall.Fstat(l.fd, &stat); {
	case err != nil:
		return err
	case stat.Nlink != 1:
		l.fault = errors.New("the log was removed, or given a second name, while it was open")
	case stat.Size != l.head.Bytes:
		l.fault = fmt.Errorf("the log has %d bytes, not the %d that were written", stat.Size, l.head.Bytes)
	}
	return l.fault
}

// Fault returns the reason why Append fails or the anchor is stale, nil when neither
// is so.
func (l *Log) Fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return errors.Join(l.fault, l.stale)
}

// Close writes the anchor a last time and closes the file. Append fails afterwards.
func (l *Log) Close() error {
	l.close.Do(func() { close(l.closing) })
	<-l.flushed
	err := l.flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = errors.New("the log is closed")
	return errors.Join(err, l.file.Close())
}
