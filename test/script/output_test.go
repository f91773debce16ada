package script_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// accepting reads s_server's output until it says where it listens, and keeps
// reading so that the server never waits for its reader.
func accepting(out io.Reader) (address string, err error) {
	scanner := bufio.NewScanner(out)
	for scanner.Scan() {
		if rest, ok := strings.CutPrefix(scanner.Text(), "ACCEPT 127.0.0.1:"); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return "localhost:" + rest, nil
		}
	}
	return "", fmt.Errorf("openssl s_server does not listen: %w", scanner.Err())
}
