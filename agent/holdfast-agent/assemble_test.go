package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestOwnerAuth(t *testing.T) {
	path := filepath.Join(t.TempDir(), "owner-auth")
	if err := os.WriteFile(path, []byte("a value\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := ownerAuth(path)
	if err != nil || string(got) != "a value" {
		t.Errorf("got %q, %v, want the value without its newline", got, err)
	}
	if err := os.Chmod(path, 0o640); err != nil {
		t.Fatal(err)
	}
	if got, err := ownerAuth(path); err == nil || strings.Contains(err.Error(), "a value") {
		t.Errorf("a file that others can read: got %q, %v", got, err)
	}
	if got, err := ownerAuth(""); got != nil || err != nil {
		t.Errorf("no file: got %q, %v", got, err)
	}
	if _, err := ownerAuth(path + "x"); err == nil {
		t.Error("a missing file was taken for no authorisation")
	}
}
