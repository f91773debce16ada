package audit

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"
)

// Break is a fault that [Open] found at the end of the log. It is the Detail of a
// record of kind "break", under the names "what", "fact" and, when a torn end was moved
// to a file, "kept".
type Break struct {
	What string // torn, cut, edited, or anchor
	Fact string // one sentence
	Kept string // the file to which the torn end was moved
}

func (b Break) record() Record {
	detail := map[string]string{"what": b.What, "fact": b.Fact}
	if b.Kept != "" {
		detail["kept"] = b.Kept
	}
	return Record{Kind: KindBreak, Detail: detail}
}

// start is the head of an empty log.
func start() anchor { return anchor{Head: hash{}.String()} }

// window is how far from the end resume searches for the last good record when the
// anchor cannot be used.
const window = 1 << 20

// resume sets the head to the last good record and moves the rest to another file.
func (l *Log) resume() ([]Break, error) {
	info, err := l.file.Stat()
	if err != nil {
		return nil, err
	}
	from, breaks := l.trusted(info.Size())
	if len(breaks) == 0 {
		l.saved = from // need not be written again
	} else if from, err = l.search(info.Size()); err != nil {
		return nil, err
	}
	if l.head, err = l.follow(from, info.Size()); err != nil {
		return nil, err
	}
	if l.head.Bytes == info.Size() {
		return breaks, nil
	}
	torn, err := l.setAside(info.Size())
	return append(breaks, torn), err
}

// trusted returns the anchor if the log agrees with it, or the fault of the anchor or
// of the log.
func (l *Log) trusted(size int64) (anchor, []Break) {
	a, err := readAnchor(l.path)
	fault := ""
	switch {
	case errors.Is(err, fs.ErrNotExist) && size == 0:
		return start(), nil
	case errors.Is(err, fs.ErrNotExist):
		return anchor{}, []Break{{What: whatAnchor, Fact: "the anchor is missing"}}
	case err != nil:
		return anchor{}, []Break{{What: whatAnchor, Fact: "the anchor cannot be used: " + err.Error()}}
	case a.Bytes > size:
		fault = fmt.Sprintf("the log had %d records and %d bytes, and now has %d bytes", a.Seq, a.Bytes, size)
		return anchor{}, []Break{{What: whatCut, Fact: fault}}
	case a.Seq == 0:
		return a, nil
	}
	if line, err := l.lineBefore(a.Bytes); err != nil || hash(sha256.Sum256(line)).String() != a.Head {
		fault = fmt.Sprintf("record %d is not the one that the anchor names", a.Seq)
		return anchor{}, []Break{{What: whatEdited, Fact: fault}}
	}
	return a, nil
}

// lineBefore returns the line that ends, with its newline, at offset end.
func (l *Log) lineBefore(end int64) ([]byte, error) {
	from := max(0, end-maxLine-2)
	data := make([]byte, end-from)
	if _, err := l.file.ReadAt(data, from); err != nil {
		return nil, err
	}
	line, ended := bytes.CutSuffix(data, []byte("\n"))
	if !ended {
		return nil, errors.New("no line ends there")
	}
	return line[bytes.LastIndexByte(line, '\n')+1:], nil
}

// search returns the last line near the end that is a record.
func (l *Log) search(size int64) (anchor, error) {
	for end := size; end > max(0, size-window); {
		line, err := l.lineBefore(end)
		if err == nil {
			if r, err := decode(line); err == nil {
				return anchor{Seq: r.Seq, Head: hash(sha256.Sum256(line)).String(), Bytes: end}, nil
			}
		}
		if end, err = l.newlineBefore(end - 1); err != nil {
			return anchor{}, err
		}
	}
	if size > 0 {
		return anchor{}, errors.New("it holds no audit record near its end: move it away")
	}
	return start(), nil
}

// newlineBefore returns the offset after the last newline before end, 0 when
// there is none within the length of a line.
func (l *Log) newlineBefore(end int64) (int64, error) {
	from := max(0, end-maxLine-2)
	data := make([]byte, end-from)
	if _, err := l.file.ReadAt(data, from); err != nil {
		return 0, err
	}
	if i := bytes.LastIndexByte(data, '\n'); i >= 0 {
		return from + int64(i) + 1, nil
	}
	return from, nil
}

// follow walks the chain from a good record and returns the last good one.
func (l *Log) follow(head anchor, size int64) (anchor, error) {
	lines := newLines(io.NewSectionReader(l.file, head.Bytes, size-head.Bytes))
	for {
		line, err := lines.next()
		if err == io.EOF || errors.Is(err, errTorn) || errors.Is(err, bufio.ErrBufferFull) {
			return head, nil
		}
		if err != nil {
			return head, err
		}
		r, err := decode(line)
		if err != nil || r.Seq != head.Seq+1 || r.Prev != head.Head {
			return head, nil
		}
		head = anchor{Seq: r.Seq, Head: hash(sha256.Sum256(line)).String(), Bytes: head.Bytes + int64(len(line)) + 1}
	}
}

// setAside moves the data after the head to a file of its own.
func (l *Log) setAside(size int64) (Break, error) {
	kept, err := l.keep(io.NewSectionReader(l.file, l.head.Bytes, size-l.head.Bytes))
	if err != nil {
		return Break{}, fmt.Errorf("keep the torn end: %w", err)
	}
	if err := l.file.Truncate(l.head.Bytes); err != nil {
		return Break{}, fmt.Errorf("cut off the torn end: %w", err)
	}
	fact := fmt.Sprintf("%d bytes after record %d are no record", size-l.head.Bytes, l.head.Seq)
	return Break{What: whatTorn, Fact: fact, Kept: kept}, nil
}

// keep copies the torn end to a new file and returns its name.
func (l *Log) keep(end io.Reader) (string, error) {
	name := l.path + ".torn-" + strconv.FormatUint(l.head.Seq+1, 10)
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	for n := 2; errors.Is(err, fs.ErrExist) && n < 100; n++ {
		name, _, _ = strings.Cut(name, "+")
		name += "+" + strconv.Itoa(n)
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	}
	if err != nil {
		return "", err
	}
	_, err = io.Copy(f, end)
	return name, errors.Join(err, f.Sync(), f.Close())
}
