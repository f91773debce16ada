package audit

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
)

// Summary is the result of a walk along the chain.
type Summary struct {
	Records uint64 // good records, up to the fault if there is one
	Head    string // SHA-256 of the last good line, hex; zeros when there is none
}

// Fault is the first fault of a log.
type Fault struct {
	Line int    // counted from 1; one more than there are when the end is missing
	What string // edited, removed, reordered, torn, cut, or anchor
	Fact string
}

// The kinds of faults.
const (
	whatEdited    = "edited"
	whatRemoved   = "removed"
	whatReordered = "reordered"
	whatTorn      = "torn"
	whatCut       = "cut"
	whatAnchor    = "anchor"
)

// Error returns the line and its fault.
func (f *Fault) Error() string { return fmt.Sprintf("line %d: %s: %s", f.Line, f.What, f.Fact) }

// Verify walks the chain of an open log up to the last record that was appended
// before the call, without stopping Append. Its error is a *[Fault] when the log is not
// as the agent wrote it; a break that [Open] recorded is a fault too, unless it was only
// a torn end. After ctx ends it soon returns ctx's error, which is not about the log.
func (l *Log) Verify(ctx context.Context) (Summary, error) {
	l.mu.Lock()
	end := l.head
	l.mu.Unlock()
	return newChecker(io.NewSectionReader(l.file, 0, end.Bytes), end).run(ctx)
}

// checker walks a log from its first line.
type checker struct {
	lines lines
	end   anchor // the log must reach at least this
	line  int    // of the last line read
	Summary
	recorded *Fault // the first break that the log itself records
}

func newChecker(r io.Reader, end anchor) *checker {
	return &checker{lines: newLines(r), end: end, Summary: Summary{Head: start().Head}}
}

func (c *checker) run(ctx context.Context) (Summary, error) {
	for {
		if err := ended(ctx, c.line); err != nil {
			return c.Summary, err
		}
		line, err := c.lines.next()
		if err == io.EOF {
			break
		}
		c.line++
		if err != nil {
			return c.Summary, c.unreadable(err)
		}
		if fault := c.check(line); fault != nil {
			return c.Summary, fault
		}
	}
	if c.Records < c.end.Seq {
		fact := fmt.Sprintf("the log ends after record %d, and had %d", c.Records, c.end.Seq)
		return c.Summary, &Fault{Line: c.line + 1, What: whatCut, Fact: fact}
	}
	if c.recorded != nil {
		return c.Summary, c.recorded
	}
	return c.Summary, nil
}

func (c *checker) unreadable(err error) error {
	switch {
	case errors.Is(err, errTorn):
		return &Fault{Line: c.line, What: whatTorn, Fact: "the last line has no end"}
	case errors.Is(err, bufio.ErrBufferFull):
		return &Fault{Line: c.line, What: whatEdited, Fact: fmt.Sprintf("longer than %d bytes", maxLine)}
	}
	return fmt.Errorf("line %d: %w", c.line, err)
}

// check takes one line as the next record.
func (c *checker) check(line []byte) *Fault {
	r, err := decode(line)
	if err != nil {
		return &Fault{Line: c.line, What: whatEdited, Fact: "not a record: " + err.Error()}
	}
	sum := hash(sha256.Sum256(line)).String()
	switch {
	case r.Seq != c.Records+1:
		return c.outOfOrder(r.Seq)
	case r.Prev != c.Head:
		return c.broken(sum)
	case r.Seq == c.end.Seq && sum != c.end.Head:
		return &Fault{Line: c.line, What: whatEdited, Fact: "not the record that the anchor names: this line or the chain up to it was replaced"}
	}
	c.take(&r, sum)
	return nil
}

func (c *checker) take(r *Record, sum string) {
	c.Records, c.Head = r.Seq, sum
	if r.Kind == KindBreak && r.Detail["what"] != whatTorn && c.recorded == nil {
		c.recorded = &Fault{Line: c.line, What: r.Detail["what"], Fact: "when the agent started here: " + r.Detail["fact"]}
	}
}

// outOfOrder distinguishes a moved line, which comes later, from a missing one.
func (c *checker) outOfOrder(seq uint64) *Fault {
	want := c.Records + 1
	if seq < want {
		return &Fault{Line: c.line, What: whatReordered, Fact: fmt.Sprintf("record %d stands where record %d belongs", seq, want)}
	}
	for at := c.line + 1; ; at++ {
		line, err := c.lines.next()
		if err != nil {
			break
		}
		if r, err := decode(line); err == nil && r.Seq == want {
			return &Fault{Line: c.line, What: whatReordered, Fact: fmt.Sprintf("record %d stands here, and record %d on line %d", seq, want, at)}
		}
	}
	return &Fault{Line: c.line, What: whatRemoved, Fact: fmt.Sprintf("records %d to %d are missing before it", want, seq-1)}
}

// broken decides which of two adjacent lines was edited. This one, whose hash is sum,
// was not if the next line or the anchor has that hash.
func (c *checker) broken(sum string) *Fault {
	witness := ""
	if line, err := c.lines.next(); err == nil {
		if r, err := decode(line); err == nil {
			witness = r.Prev
		}
	} else if c.end.Seq == c.Records+1 {
		witness = c.end.Head
	}
	if c.line > 1 && (witness == sum || witness == "") {
		return &Fault{Line: c.line - 1, What: whatEdited, Fact: fmt.Sprintf("line %d was written after another line than this", c.line)}
	}
	return &Fault{Line: c.line, What: whatEdited, Fact: "it does not continue the line before it"}
}

// lines reads lines up to maxLine bytes.
type lines struct{ r *bufio.Reader }

var errTorn = errors.New("no newline at the end")

func newLines(r io.Reader) lines { return lines{bufio.NewReaderSize(r, maxLine+1)} }

// next returns a line without its newline, valid until the next call; io.EOF
// after the last, errTorn when that one has no newline.
func (l lines) next() ([]byte, error) {
	line, err := l.r.ReadSlice('\n')
	if err == io.EOF && len(line) > 0 {
		return nil, errTorn
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(line, []byte("\n")), nil
}
