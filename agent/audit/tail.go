package audit

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
)

// maxSearch is how far back Tail searches, in bytes: a caller with few records must not
// make the agent read a log of years.
const maxSearch = 16 << 20

// Tail returns the newest n lines for whose records keep returns true, oldest
// first, as the JSON texts that they are; an empty slice, never nil, when there
// are none. A nil keep accepts all. It reads the last 16 MiB of the log, skips
// lines that are not records, and returns ctx's error soon after ctx ends.
func (l *Log) Tail(ctx context.Context, n int, keep func(*Record) bool) ([]string, error) {
	return l.tail(ctx, n, keep, maxSearch)
}

func (l *Log) tail(ctx context.Context, n int, keep func(*Record) bool, reach int64) ([]string, error) {
	l.mu.Lock()
	end := l.head.Bytes
	l.mu.Unlock()
	newest := []string{}
	lines := backwards{file: l.file, from: end}
	for read := 0; lines.end() > max(0, end-reach) && len(newest) < n; read++ {
		if err := ended(ctx, read); err != nil {
			return nil, err
		}
		line, err := lines.next()
		if err != nil {
			return nil, err
		}
		r, err := decode(line)
		if err != nil || keep != nil && !keep(&r) {
			continue
		}
		newest = append(newest, string(line))
	}
	slices.Reverse(newest)
	return newest, nil
}

// ended returns ctx's error, and checks for it once in a thousand lines.
func ended(ctx context.Context, lines int) error {
	if lines%1000 != 0 {
		return nil
	}
	return ctx.Err()
}

// block is the size of one read on the way back, in bytes.
const block = 256 << 10

// backwards reads lines from the last to the first.
type backwards struct {
	file io.ReaderAt
	from int64  // where data starts in file
	data []byte // read and not yet returned
}

// end returns the offset up to which lines have not been returned.
func (b *backwards) end() int64 { return b.from + int64(len(b.data)) }

// next returns a line without its newline; io.EOF after the first of the file.
func (b *backwards) next() ([]byte, error) {
	for {
		body, whole := bytes.CutSuffix(b.data, []byte("\n"))
		if len(b.data) > 0 && !whole {
			return nil, errors.New("no line ends there")
		}
		if i := bytes.LastIndexByte(body, '\n'); whole && (i >= 0 || b.from == 0) {
			b.data = b.data[:i+1]
			return body[i+1:], nil
		}
		if err := b.more(); err != nil {
			return nil, err
		}
	}
}

// more reads the block before data.
func (b *backwards) more() error {
	size := min(block, b.from)
	if size == 0 {
		return io.EOF
	}
	data := make([]byte, size, size+int64(len(b.data)))
	if _, err := b.file.ReadAt(data, b.from-size); err != nil {
		return err
	}
	b.from, b.data = b.from-size, append(data, b.data...)
	return nil
}
