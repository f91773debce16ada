package daemon

import (
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"holdfast/internal/guard"
	"holdfast/internal/strictyaml"
)

// Load reads the settings file at path. It rejects a file that another user could
// have written, see [guard.CheckFile].
func (s *Settings) Load(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := guard.CheckOpen(f); err != nil {
		return err
	}
	data, err := io.ReadAll(io.LimitReader(f, strictyaml.MaxFile+1))
	if err != nil {
		return err
	}
	return s.Parse(path, data)
}

// Parse reads a settings file's text: lines of "word: value", each word a setting,
// each once. In errors and origins, name stands for the file. The error has every
// fault, each as "name:line: fault".
func (s *Settings) Parse(name string, data []byte) error {
	r, root, err := strictyaml.Parse(name, data)
	if err != nil {
		return err
	}
	s.file = name
	if root == nil { // nothing but comments
		return nil
	}
	words, mappings := map[string]func(*strictyaml.Node){}, map[string]map[string]func(*strictyaml.Node){}
	for _, row := range s.list {
		read := func(n *strictyaml.Node) { s.readValue(r, row, n) }
		outer, inner, nested := strings.Cut(row.Name, ".")
		switch {
		case !nested:
			words[row.Name] = read
			continue
		case mappings[outer] == nil:
			mappings[outer] = map[string]func(*strictyaml.Node){}
			words[outer] = func(n *strictyaml.Node) { r.Fields(n, outer, mappings[outer]) }
		}
		mappings[outer][inner] = read
	}
	r.Fields(root, "the configuration", words)
	return r.Err()
}

// readValue gives a setting the value that the file has for it.
func (s *Settings) readValue(r *strictyaml.Reader, row Setting, n *strictyaml.Node) {
	var ok bool
	switch row.Value.kind {
	case text:
		_, ok = r.Text(n, row.Name+": a string")
	case number:
		_, ok = r.Int(n, row.Name+": a number", math.MinInt64, math.MaxInt64)
	case boolean:
		_, ok = r.Bool(n, row.Name+": ")
	}
	if !ok {
		return
	}
	if err := row.Value.set(n.Value); err != nil {
		r.Errorf(n, "%s: %v", row.Name, err)
		return
	}
	s.origins[row.Name] = fmt.Sprintf("%s:%d", s.file, n.Line)
}
