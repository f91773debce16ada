// Package strictyaml reads configuration files in a small part of YAML: one
// document of at most [MaxFile] bytes, made of mappings, lists, text, decimal
// numbers, true and false. Anchors, aliases, tags, merge keys, words that are
// unknown and words that occur twice are errors.
//
// Start at [Parse]. The methods of a [Reader] read one node each and record what
// is wrong with it; [Reader.Err] returns all of it, each as "name:line: fact".
package strictyaml

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// MaxFile is the size of the largest file, in bytes.
const MaxFile = 1 << 20

// A Node is one value of a file, or one word of a mapping. None that a [Reader]
// hands out is an alias, or has an anchor or a tag of its own.
type Node = yaml.Node

// A Reader reads the nodes of one file and records their errors. It is for one
// goroutine.
type Reader struct {
	name string
	errs []error
}

// Parse returns a reader and the root of the one document in data; name stands
// for the file in errors. The root is nil when data holds nothing but comments.
func Parse(name string, data []byte) (*Reader, *Node, error) {
	r := &Reader{name: name}
	if len(data) > MaxFile {
		return nil, nil, r.errorAt(1, "longer than %d bytes", MaxFile)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, rest yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return r, nil, nil
	} else if err != nil {
		return nil, nil, r.syntaxError(err)
	}
	switch err := decoder.Decode(&rest); {
	case err == nil:
		return nil, nil, r.errorAt(rest.Line, "a second document")
	case !errors.Is(err, io.EOF):
		return nil, nil, r.syntaxError(err)
	}
	root := document.Content[0]
	if r.plain(root); len(r.errs) > 0 {
		return nil, nil, r.Err()
	}
	return r, root, nil
}

// Err returns the errors that were recorded, joined, or nil.
func (r *Reader) Err() error { return errors.Join(r.errs...) }

// Errorf records what is wrong at a node. The caller continues, to find further faults.
func (r *Reader) Errorf(at *Node, format string, args ...any) {
	r.errs = append(r.errs, r.errorAt(at.Line, format, args...))
}

func (r *Reader) errorAt(line int, format string, args ...any) error {
	return fmt.Errorf("%s:%d: "+format, append([]any{r.name, line}, args...)...)
}

// yamlLine finds the line in the YAML library's errors, "yaml: line 3: text".
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

func (r *Reader) syntaxError(err error) error {
	text, line := strings.ReplaceAll(err.Error(), "\n", " "), 1
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		text = text[len(found[0]):]
		if n, err := strconv.Atoi(found[1]); err == nil {
			line = n
		}
	}
	return r.errorAt(line, "%s", text)
}

// plain records each node that is not what its text shows: it stands for another
// node, other nodes stand for it, or a tag changes its type. It does not follow
// aliases, so it ends.
func (r *Reader) plain(node *Node) {
	switch {
	case node.Kind == yaml.AliasNode:
		r.Errorf(node, "aliases such as *%.80s are not accepted: write the value itself", node.Value)
	case node.Anchor != "":
		r.Errorf(node, "anchors such as &%.80s are not accepted", node.Anchor)
	case node.Style&yaml.TaggedStyle != 0:
		r.Errorf(node, "tags such as %.80s are not accepted", node.Tag)
	case node.Kind == yaml.ScalarNode && node.Tag == "!!merge":
		r.Errorf(node, "merge keys (<<) are not accepted")
	}
	for _, n := range node.Content {
		r.plain(n)
	}
}

// Fields hands the value of each word of a mapping to the function for that word.
// It returns the words that are there by their names, or nil when node is not a
// mapping. A nil node is an empty file. In errors, what names the mapping.
func (r *Reader) Fields(node *Node, what string, words map[string]func(*Node)) map[string]*Node {
	if node == nil {
		r.errs = append(r.errs, r.errorAt(1, "the file is empty"))
		return nil
	}
	if node.Kind != yaml.MappingNode {
		r.Errorf(node, "%s must be a mapping of \"word: value\" lines, not %s", what, Kind(node))
		return nil
	}
	found := map[string]*Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		word, value := node.Content[i], node.Content[i+1]
		read := words[word.Value]
		switch {
		case word.Kind != yaml.ScalarNode || word.Tag != "!!str" || read == nil:
			r.Errorf(word, "%s has no word %s; the words are %s", what, Quote(word), strings.Join(slices.Sorted(maps.Keys(words)), ", "))
		case found[word.Value] != nil:
			r.Errorf(word, "%s is there already, on line %d", word.Value, found[word.Value].Line)
		default:
			found[word.Value] = word
			read(value)
		}
	}
	return found
}

// List reads a list with at least one item, none of them twice, and reports
// whether it did. In errors, what stands for the list, such as "a list". Items
// that item rejects are left out.
func List[T comparable](r *Reader, node *Node, what string, item func(*Node) (T, bool)) ([]T, bool) {
	if node.Kind != yaml.SequenceNode || len(node.Content) == 0 {
		r.Errorf(node, "%s such as [one, two], not %s", Expected(what), Kind(node))
		return nil, false
	}
	var items []T
	before := len(r.errs)
	for _, n := range node.Content {
		value, ok := item(n)
		if ok && slices.Contains(items, value) {
			r.Errorf(n, "%s is in the list already", Quote(n))
			ok = false
		}
		if ok {
			items = append(items, value)
		}
	}
	return items, len(items) == len(node.Content) && len(r.errs) == before
}

// Expected returns what a value was to be, in the words of an error: "name: a number" is
// "name: expected a number".
func Expected(what string) string {
	i := strings.LastIndex(what, ": ") + 1
	if i > 0 {
		i++
	}
	return what[:i] + "expected " + what[i:]
}

// Text reads text, which may be empty. In errors, what says which text is wanted.
func (r *Reader) Text(node *Node, what string) (string, bool) {
	if !scalar(node, "!!str") {
		r.Errorf(node, "%s, not %s", Expected(what), Kind(node))
		return "", false
	}
	return node.Value, true
}

// Bool reads true or false; no other spelling is one. In errors, what stands
// before the fact, such as "new-key: ", or is empty.
func (r *Reader) Bool(node *Node, what string) (value, ok bool) {
	if !scalar(node, "!!bool") || node.Value != "true" && node.Value != "false" {
		r.Errorf(node, "%sexpected true or false, not %s", what, Quote(node))
		return false, false
	}
	return node.Value == "true", true
}

// Int reads a number from low to high in plain decimal digits: a reader of the
// file may not know YAML's octal, hexadecimal and underscores. In errors, what
// says which number is wanted.
func (r *Reader) Int(node *Node, what string, low, high int64) (int64, bool) {
	n, err := strconv.ParseInt(node.Value, 10, 64)
	plain := err == nil && strconv.FormatInt(n, 10) == node.Value
	if !scalar(node, "!!int") || !plain || n < low || n > high {
		r.Errorf(node, "%s, not %s", Expected(what), Quote(node))
		return 0, false
	}
	return n, true
}

// Float reads a decimal number. In errors, what says which number is wanted.
func (r *Reader) Float(node *Node, what string) (float64, bool) {
	f, err := strconv.ParseFloat(node.Value, 64)
	number := scalar(node, "!!float") || scalar(node, "!!int")
	if !number || err != nil || strings.ContainsAny(node.Value, "_xX") {
		r.Errorf(node, "%s, not %s", Expected(what), Quote(node))
		return 0, false
	}
	return f, true
}

// Duration reads a duration above 0, as [time.ParseDuration] does. In errors, what
// stands before the fact, such as "max-age: ", or is empty.
func (r *Reader) Duration(node *Node, what string) (time.Duration, bool) {
	d, err := time.ParseDuration(node.Value)
	if !scalar(node, "!!str") || err != nil || d <= 0 {
		r.Errorf(node, "%sexpected a duration such as 90s, 10m or 24h, not %s", what, Quote(node))
		return 0, false
	}
	return d, true
}

func scalar(node *Node, tag string) bool { return node.Kind == yaml.ScalarNode && node.Tag == tag }

// Kind describes a node without its value, which may be a secret.
func Kind(node *Node) string {
	switch {
	case node.Kind == yaml.MappingNode:
		return "a mapping"
	case node.Kind == yaml.SequenceNode && len(node.Content) == 0:
		return "an empty list"
	case node.Kind == yaml.SequenceNode:
		return "a list"
	}
	switch node.Tag {
	case "!!null":
		return "nothing"
	case "!!str":
		return "a string"
	case "!!bool":
		return "true or false"
	case "!!int", "!!float":
		return "a number"
	}
	return "a date"
}

// Quote shows the value of a scalar, cut after 80 bytes, and describes any other
// node.
func Quote(node *Node) string {
	if node.Kind != yaml.ScalarNode || node.Tag == "!!null" {
		return Kind(node)
	}
	return fmt.Sprintf("%.80q", node.Value)
}
