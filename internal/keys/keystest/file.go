package keystest

import (
	"bytes"
	"testing"
	"time"

	"holdfast/internal/keys"
)

func testExportImport(t *testing.T, h Harness) {
	s := open(t, h)
	for _, c := range h.Can {
		template := keys.Template{Purpose: keys.TLSClient, Algorithm: c.Algorithm, RSABits: c.RSABits}
		m := s.create(template)
		file, err := s.Export(m)
		if err != nil {
			t.Fatalf("%s: export: %v", c.Algorithm, err)
		}
		s.wantImports(file, keys.Template{Purpose: keys.TLSClient}, m) // the file says which algorithm
		s.wantImports(file, template, m)
	}
	if h.WrongPINs > 0 {
		importWithPIN(s)
	}
}

// wantImports imports file for t and compares the key with the one exported.
func (s *subject) wantImports(file []byte, t keys.Template, want keys.Material) keys.Material {
	s.t.Helper()
	got, err := s.Import(s.ctx(), t, file, false)
	if err != nil {
		s.t.Fatalf("import: %v", err)
	}
	if !bytes.Equal(got.Public, want.Public) || got.Imported || got.PIN != want.PIN || got.Backend != want.Backend {
		s.t.Errorf("import: got %+v, want %+v", got, want)
	}
	if err := s.Check(s.ctx(), got); err != nil {
		s.t.Errorf("check of an imported key: %v", err)
	}
	if !got.PIN {
		s.wantSigns(stored(s.t, got))
	}
	return got
}

func importWithPIN(s *subject) {
	s.t.Helper()
	m := s.create(s.withPIN())
	file, err := s.Export(m)
	if err != nil {
		s.t.Fatalf("export: %v", err)
	}
	got := s.wantImports(file, keys.Template{Purpose: keys.TLSClient}, m)
	s.wantLocked("imported", got)
	s.unlock(got, time.Now().Add(time.Hour))
	s.wantSigns(got)
}

func testImportRefuses(t *testing.T, h Harness) {
	s := open(t, h)
	file, err := s.Export(s.create(baseline()))
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string][]byte{
		"nothing":    {},
		"no key":     []byte("no key\n"),
		"first half": file[:len(file)/2],
		"one MiB":    bytes.Repeat([]byte{'A'}, 1<<20),
	} {
		_, err := s.Import(s.ctx(), baseline(), bad, true)
		wantKind(t, name, err, refusals...)
	}
	wrong := baseline()
	wrong.Algorithm = keys.ES384
	_, err = s.Import(s.ctx(), wrong, file, true)
	wantKind(t, "another algorithm", err, refusals...)

	other := h.Other(t)
	defer other.Close()
	_, err = other.Import(s.ctx(), baseline(), file, true)
	wantKind(t, "another device's key", err, refusals...)
}
