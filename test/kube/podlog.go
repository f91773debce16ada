package kube

import (
	"context"
	"sync"
)

// podLog is what a container has written. Readers follow it.
type podLog struct {
	mu    sync.Mutex
	text  []byte
	more  chan struct{} // closed, and made anew, when there is more
	ended bool
}

func newPodLog() *podLog { return &podLog{more: make(chan struct{})} }

func (l *podLog) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, text...)
	close(l.more)
	l.more = make(chan struct{})
}

func (l *podLog) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ended {
		l.ended = true
		close(l.more)
	}
}

// since returns what was written after an offset, and what is closed when there
// is more.
func (l *podLog) since(offset int) (text []byte, more <-chan struct{}, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text[offset:], l.more, l.ended
}

// follow calls write with what was written, and with follow also with what will
// be, until the log or ctx ends.
func (l *podLog) follow(ctx context.Context, follow bool, write func([]byte) error) {
	for offset := 0; ; {
		text, more, ended := l.since(offset)
		if len(text) > 0 {
			if write(text) != nil {
				return
			}
			offset += len(text)
		}
		if !follow || ended {
			return
		}
		select {
		case <-more:
		case <-ctx.Done():
			return
		}
	}
}
