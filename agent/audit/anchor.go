package audit

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// anchor is the state of the log at some time: a log that is shorter, or has another
// line at that place, was changed. It is stored in a file of its own beside the log, as
// one JSON object and a newline.
type anchor struct {
	Seq   uint64 `json:"seq"`   // of the last record, 0 when there was none
	Head  string `json:"head"`  // SHA-256 of its line, hex; zeros when there was none
	Bytes int64  `json:"bytes"` // length of the log at its end
}

// AnchorPath returns the name of the anchor of the log at path.
func AnchorPath(path string) string { return path + ".anchor" }

// readAnchor returns the anchor of the log at path, and an error that
// errors.Is fs.ErrNotExist when there is none.
func readAnchor(path string) (anchor, error) {
	f, err := os.OpenFile(AnchorPath(path), os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return anchor{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<10))
	if err != nil {
		return anchor{}, err
	}
	a, err := parseAnchor(data)
	if err != nil {
		return anchor{}, fmt.Errorf("%s: %w", AnchorPath(path), err)
	}
	return a, nil
}

func parseAnchor(data []byte) (anchor, error) {
	var a anchor
	if err := json.Unmarshal(data, &a); err != nil {
		return anchor{}, err
	}
	if !bytes.Equal(a.text(), data) {
		return anchor{}, errors.New("not in the form that the agent writes")
	}
	if head, err := hex.DecodeString(a.Head); err != nil || len(head) != len(hash{}) || a.Bytes < 0 || (a.Seq == 0) != (a.Bytes == 0) {
		return anchor{}, errors.New("not an anchor")
	}
	return a, nil
}

func (a anchor) text() []byte {
	data, err := json.Marshal(a)
	if err != nil {
		panic(err) // two numbers and a string always encode
	}
	return append(data, '\n')
}

// write puts the anchor in place. The log must be on the disk up to it already:
// after a power cut an anchor must never be ahead of its log.
func (a anchor) write(path string) error {
	temp := AnchorPath(path) + ".new"
	if err := os.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(a.text())
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		os.Remove(temp)
		return err
	}
	return os.Rename(temp, AnchorPath(path))
}
