package audit

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// interval bounds the records that a power cut may lose.
const interval = time.Second

// flusher writes appended records to the disk, at most once per interval. It sleeps
// while no record is appended.
func (l *Log) flusher() {
	defer close(l.flushed)
	for {
		select {
		case <-l.dirty:
		case <-l.closing:
			return
		}
		select {
		case <-time.After(interval):
		case <-l.closing:
			return
		}
		if l.flush() != nil {
			l.retry()
		}
	}
}

// retry makes the flusher run again although no record was appended.
func (l *Log) retry() {
	select {
	case l.dirty <- struct{}{}:
	default:
	}
}

// flush writes the log to the disk and then the anchor, in this order.
func (l *Log) flush() error {
	l.mu.Lock()
	head := l.head
	l.mu.Unlock()
	if head == l.saved && exists(AnchorPath(l.path)) {
		return nil
	}
	if err := errors.Join(l.inPlace(), l.sync()); err != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.fault == nil {
			l.fault = err
		}
		return err
	}
	err := l.anchor(head)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale = err
	return err
}

// sync writes the file to the disk. When it fails, the kernel may have dropped data and
// will not report that again: no more records are appended.
func (l *Log) sync() error {
	if err := l.file.Sync(); err != nil {
		return fmt.Errorf("fsync: %w", err)
	}
	return nil
}

// inPlace checks that the log's path is still the file that we write.
func (l *Log) inPlace() error {
	ours, err := l.file.Stat()
	if err != nil {
		return err
	}
	now, err := os.Lstat(l.path)
	if err != nil {
		return err
	}
	if !os.SameFile(ours, now) {
		return errors.New("the log was moved away while it was open")
	}
	return nil
}

func (l *Log) anchor(head anchor) error {
	if err := head.write(l.path); err != nil {
		return fmt.Errorf("write the anchor: %w", err)
	}
	l.saved = head
	return syncDirectory(filepath.Dir(l.path))
}

// syncDirectory makes a rename in a directory survive a power cut.
func syncDirectory(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}
