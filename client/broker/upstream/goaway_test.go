package upstream

import (
	"errors"
	"io"
	"net/http"
	"testing"
)

// The values are those with which net/http says that a request was not acted on, and
// not the ones of a connection that broke.
func TestGoAwayErrors(t *testing.T) {
	list := goAwayErrors()
	if len(list) != 2 || list[0] == nil || list[1] == nil || list[0] == list[1] {
		t.Fatalf("got %v, want two errors", list)
	}
	for i, want := range []string{"http2: Transport received Server's graceful shutdown GOAWAY", "http2: client conn not usable"} {
		if got := list[i].Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, err := range []error{io.EOF, io.ErrUnexpectedEOF, http.ErrServerClosed, errors.New(list[0].Error())} {
		if untaken(err) {
			t.Errorf("%v counts as untaken", err)
		}
	}
}
