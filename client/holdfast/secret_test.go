package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// secrets hands lines over on a descriptor of their own, and returns its number.
func secrets(t *testing.T, lines ...string) string {
	t.Helper()
	r, w, err := os.Pipe()
	check(t, err)
	_, err = io.WriteString(w, strings.Join(lines, "\n")+"\n")
	check(t, err)
	check(t, w.Close())
	fd, err := unix.Dup(int(r.Fd())) // the command owns it
	check(t, err)
	check(t, r.Close())
	return fmt.Sprint(fd)
}

func TestReadLine(t *testing.T) {
	for input, want := range map[string]string{
		"": "", "\n": "", "1234": "1234", "1234\n": "1234", "1234\r\n": "1234", "12\n34": "12", "1 2\x00": "1 2\x00",
		strings.Repeat("1", 64) + "\r\n": strings.Repeat("1", 64),
	} {
		rest := strings.NewReader(input)
		got, err := readLine(rest)
		if err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v, want %q", input, got, err, want)
		}
		if input == "12\n34" && rest.Len() != 2 {
			t.Errorf("%d bytes left, want the next line untouched", rest.Len())
		}
	}
	if long, _ := readLine(strings.NewReader(strings.Repeat("1", 1000))); len(long) <= maxSecret {
		t.Errorf("a line that is too long came back with %d bytes, as if it were not", len(long))
	}
}

func FuzzReadLine(f *testing.F) {
	for _, seed := range []string{"", "\n", "123456\r\n", "a\nb", "\r", "\x00\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		got, err := readLine(strings.NewReader(input))
		first, _, _ := strings.Cut(input, "\n")
		if err != nil || !strings.HasPrefix(first, string(got)) || len(got) <= maxSecret && string(got) != strings.TrimSuffix(first, "\r") {
			t.Errorf("%q: got %q, %v", input, got, err)
		}
	})
}

// A new PIN or PUK must not be easy to guess, and the error does not
// repeat it.
func TestCheckNew(t *testing.T) {
	for secret, good := range map[string]bool{
		"123456": false, "12345678": false, "000000": false, "99999999": false, "654321": false, "234567": false, "abcdefg": false,
		"12345": false, "123456789": false, "": false, "12 456": false, "pïn456": false,
		"246810": true, "135792": true, "112233": true, "123457": true, "hunter2!": true,
	} {
		err := checkNew("new PIN", []byte(secret))
		if (err == nil) != good {
			t.Errorf("%q: got %v", secret, err)
		}
		if err != nil && secret != "" && strings.Contains(err.Error(), secret) {
			t.Errorf("%q is in the text of its error: %v", secret, err)
		}
	}
}

func TestRandomPUK(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		puk := string(randomPUK())
		if len(puk) != 8 || strings.Trim(puk, "0123456789") != "" || checkNew("PUK", []byte(puk)) != nil {
			t.Errorf("got %q", puk)
		}
		seen[puk] = true
	}
	if len(seen) < 99 {
		t.Errorf("%d different ones of 100", len(seen))
	}
}
