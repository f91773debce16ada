package main

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"holdfast/internal/agentwire"
)

// maxRecord is the longest line of a log, in bytes with its newline.
const maxRecord = 16<<10 + 1

// chain verifies a log from its first line. It shares no code with the agent, so that
// a defect of one does not hide one of the other.
type chain struct {
	line int    // of the last line read
	seq  uint64 // of the last record
	head string // SHA-256 of the last line, hex
	end  anchor
}

// anchor is the length and head of the log, as the agent wrote them beside it.
type anchor struct {
	Seq  uint64 `json:"seq"`
	Head string `json:"head"`
}

// verifyFile checks a log without an agent.
func verifyFile(path string) (agentwire.VerifyAuditReply, error) {
	c := chain{head: strings.Repeat("0", 2*sha256.Size)}
	// The anchor is read first: records that the agent adds meanwhile come after it.
	if err := c.end.read(path + ".anchor"); err != nil {
		return agentwire.VerifyAuditReply{}, err
	}
	err := eachLine(path, c.next)
	if err == nil && c.seq < c.end.Seq {
		err = changed(path, c.line+1, fmt.Sprintf("the log ends after record %d, and had %d", c.seq, c.end.Seq))
	}
	return agentwire.VerifyAuditReply{Records: int(c.seq), Head: c.head}, err
}

func (e *anchor) read(path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return failf("copy the anchor together with the log: without it a missing end is not found", "%w", err)
	}
	if err == nil {
		err = json.Unmarshal(data, e)
	}
	return err
}

// next takes one line as the next record.
func (c *chain) next(path string, line []byte) error {
	c.line++
	var r record
	if err := json.Unmarshal(line, &r); err != nil {
		return changed(path, c.line, "not a record")
	}
	sum := sha256.Sum256(line)
	head := hex.EncodeToString(sum[:])
	switch {
	case r.Seq != c.seq+1:
		return changed(path, c.line, fmt.Sprintf("record %d stands where record %d belongs", r.Seq, c.seq+1))
	case r.Prev != c.head:
		return changed(path, c.line, "it does not continue the line before it: one of the two was edited")
	case r.Seq == c.end.Seq && head != c.end.Head:
		return changed(path, c.line, "not the record that the anchor names")
	case r.Kind == "break" && r.Detail["what"] != "torn":
		return changed(path, c.line, "the agent found the log changed when it started: "+r.Detail["fact"])
	}
	c.seq, c.head = r.Seq, head
	return nil
}

func changed(path string, line int, fact string) error {
	return failf("keep a copy of the file and of its anchor, and look at that line", "%s:%d: the log was changed: %s", path, line, fact)
}

// eachLine calls take for each line of a file.
func eachLine(path string, take func(path string, line []byte) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := bufio.NewReaderSize(f, maxRecord)
	for n := 1; ; n++ {
		line, err := r.ReadSlice('\n')
		switch {
		case err == io.EOF && len(line) == 0:
			return nil
		case err == io.EOF:
			return changed(path, n, "it has no end")
		case errors.Is(err, bufio.ErrBufferFull):
			return changed(path, n, "longer than any record")
		case err != nil:
			return err
		}
		if err := take(path, line[:len(line)-1]); err != nil {
			return err
		}
	}
}

// tailFile returns the last n lines of a log.
func tailFile(path string, n int) ([]string, error) {
	var last []string
	err := eachLine(path, func(_ string, line []byte) error {
		if last = append(last, string(line)); len(last) > n {
			last = last[1:]
		}
		return nil
	})
	return last, err
}
