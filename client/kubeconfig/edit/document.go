package edit

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"holdfast/client/kubeconfig"
)

// document is a file's text and its nodes, which know where they begin.
type document struct {
	data  []byte
	lines []int // where each line begins
	root  *yaml.Node
	file  *kubeconfig.File
}

// parse rejects a text in which positions of the YAML library and of the text differ:
// several documents, byte order marks, and the line ends that only YAML 1.1 knows.
func parse(data []byte) (*document, error) {
	file, err := kubeconfig.Parse("kubeconfig", data)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(data) || bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) || bytes.ContainsAny(data, "\u0085\u2028\u2029\x00") ||
		bytes.Count(data, []byte("\r")) != bytes.Count(data, []byte("\r\n")) {
		return nil, fmt.Errorf("%w: it is not plain UTF-8 with ordinary line ends", ErrLayout)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node, rest yaml.Node
	if err := decoder.Decode(&node); err != nil {
		return nil, err
	}
	if err := decoder.Decode(&rest); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: it holds more than one document", ErrLayout)
	}
	root := node.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%w: it is not a kubeconfig", ErrLayout)
	}
	d := &document{data: data, lines: []int{0}, root: root, file: file}
	for i, b := range data {
		if b == '\n' {
			d.lines = append(d.lines, i+1)
		}
	}
	return d, nil
}

// offset returns where a node begins in the text.
func (d *document) offset(node *yaml.Node) (int, bool) {
	if node.Line < 1 || node.Line > len(d.lines) {
		return 0, false
	}
	at := d.lines[node.Line-1]
	for range node.Column - 1 { // columns count characters
		if at >= len(d.data) || d.data[at] == '\n' {
			return 0, false
		}
		_, size := utf8.DecodeRune(d.data[at:])
		at += size
	}
	return at, at < len(d.data)
}

// line returns the text of a line, counted from 1, without its end.
func (d *document) line(n int) string {
	return strings.TrimRight(string(d.data[d.lines[n-1]:d.after(n)]), "\r\n")
}

// after returns where the line after line n begins, or the end of the text.
func (d *document) after(n int) int {
	if n < len(d.lines) {
		return d.lines[n]
	}
	return len(d.data)
}

// ending returns the line end of the text.
func (d *document) ending() string {
	if bytes.Contains(d.data, []byte("\r\n")) {
		return "\r\n"
	}
	return "\n"
}

// entry returns the key and value of a word of a mapping. It does not
// look into merged mappings, whose content is elsewhere in the text.
func (d *document) entry(mapping *yaml.Node, word string) (key, value *yaml.Node) {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == word && mapping.Content[i].Kind == yaml.ScalarNode {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

func (d *document) word(mapping *yaml.Node, word string) *yaml.Node {
	_, value := d.entry(mapping, word)
	return value
}

// item returns the entry of a list that has a name, or nil.
func (d *document) item(list, name string) *yaml.Node {
	values := d.word(d.root, list)
	if values == nil || values.Kind != yaml.SequenceNode {
		return nil
	}
	i := slices.IndexFunc(values.Content, func(n *yaml.Node) bool {
		value := d.word(n, "name")
		return value != nil && value.Kind == yaml.ScalarNode && value.Value == name
	})
	if i < 0 {
		return nil
	}
	return values.Content[i]
}

// contextWord returns the cluster or the user of a context, or nil.
func (d *document) contextWord(context, word string) *yaml.Node {
	return d.word(d.word(d.item("contexts", context), "context"), word)
}

// record returns the record that Add stored in the user of this name, or nil.
func (d *document) record(name string) *Record {
	for _, u := range d.file.Users {
		if u.Name == name && u.AuthInfo != nil {
			return RecordOf(u.AuthInfo)
		}
	}
	return nil
}

// meaning returns the content of a text without its layout.
func meaning(data []byte) (map[string]any, error) {
	var fields map[string]any
	err := yaml.Unmarshal(data, &fields)
	return fields, err
}

// generic returns the content of an entry in the types of [meaning].
func generic(entry any) (map[string]any, error) {
	text, err := yaml.Marshal(entry)
	if err != nil {
		return nil, err
	}
	return meaning(text)
}

// entryNamed returns the entry of a list that has a name, or nil.
func entryNamed(list any, name string) map[string]any {
	entries, _ := list.([]any)
	for _, e := range entries {
		if entry, _ := e.(map[string]any); entry["name"] == name {
			return entry
		}
	}
	return nil
}
