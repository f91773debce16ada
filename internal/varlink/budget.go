package varlink

import (
	"errors"
	"sync"
)

// ErrBusy is returned for a request over 2 KiB that arrives while the big requests of
// other connections use all of Service.BigBytes.
var ErrBusy = errors.New("too many big requests at once")

// A budget counts the bytes that the connections of a service hold together.
type budget struct {
	mu    sync.Mutex
	bytes int64
}

// take adds n bytes, or reports that there would be more than limit.
func (b *budget) take(n, limit int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.bytes+n > limit {
		return false
	}
	b.bytes += n
	return true
}

func (b *budget) give(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes -= n
}

// A share is what one connection has taken of its service's budget. The zero
// share has no budget and covers everything: a client counts nothing.
type share struct {
	of    *budget
	limit int64
	bytes int64
}

// cover takes the bytes for a buffer of that size before it is allocated.
func (s *share) cover(size int) error {
	more := above(size) - s.bytes
	if s.of == nil || more <= 0 {
		return nil
	}
	if !s.of.take(more, s.limit) {
		return ErrBusy
	}
	s.bytes += more
	return nil
}

// shrink gives back the bytes that a buffer of that size does not need.
func (s *share) shrink(size int) {
	if less := s.bytes - above(size); less > 0 {
		s.of.give(less)
		s.bytes -= less
	}
}

// above is the part of a buffer that counts.
func above(size int) int64 { return int64(max(size-smallBuffer, 0)) }
