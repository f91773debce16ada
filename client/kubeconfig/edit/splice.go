package edit

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// splice replaces the text between two offsets.
type splice struct {
	from, to int
	text     string
}

// apply returns the document's text with all splices, which must not overlap.
func (d *document) apply(all []splice) ([]byte, error) {
	slices.SortFunc(all, func(a, b splice) int { return cmp.Compare(a.from, b.from) })
	var out bytes.Buffer
	at := 0
	for _, s := range all {
		if s.from < at || s.to < s.from || s.to > len(d.data) {
			return nil, fmt.Errorf("%w: two changes would overlap", ErrLayout)
		}
		out.Write(d.data[at:s.from])
		out.WriteString(s.text)
		at = s.to
	}
	out.Write(d.data[at:])
	return out.Bytes(), nil
}

// insertion is a new first entry of a list: at the beginning, no end of another entry
// has to be found.
type insertion struct {
	list string
	item any
}

func (d *document) insert(i insertion) (splice, error) {
	key, values := d.entry(d.root, i.list)
	unable := fmt.Errorf("%w: %s", ErrLayout, i.list)
	switch {
	case values == nil:
		return splice{}, fmt.Errorf("%w: it has no %s; a line %q is enough", ErrLayout, i.list, i.list+": []")
	case values.Anchor != "" || values.Kind == yaml.AliasNode:
		return splice{}, unable
	case values.Kind == yaml.SequenceNode && values.Style&yaml.FlowStyle != 0:
		return d.insertFlow(i, values)
	case values.Kind == yaml.SequenceNode && len(values.Content) > 0:
		first := d.line(values.Content[0].Line)
		dash := strings.IndexByte(first, '-')
		if dash < 0 || strings.TrimLeft(first[:dash], " ") != "" {
			return splice{}, unable
		}
		return d.insertBlock(i, key, dash)
	case values.Kind == yaml.ScalarNode && values.Tag == "!!null" && values.Value == "":
		return d.insertBlock(i, key, key.Column-1)
	case values.Kind == yaml.ScalarNode && values.Tag == "!!null":
		from, to, ok := d.span(values)
		text, err := flow(i.item)
		if !ok || err != nil {
			return splice{}, unable
		}
		return splice{from, to, "[" + text + "]"}, nil
	}
	return splice{}, unable
}

// insertBlock writes an entry's lines below the line of the list's word.
func (d *document) insertBlock(i insertion, key *yaml.Node, indent int) (splice, error) {
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode([]any{i.item}); err != nil {
		return splice{}, err
	}
	var block strings.Builder
	for line := range strings.Lines(text.String()) {
		block.WriteString(strings.Repeat(" ", indent) + strings.TrimSuffix(line, "\n") + d.ending())
	}
	at, lines := d.after(key.Line), block.String()
	if at == len(d.data) && !bytes.HasSuffix(d.data, []byte("\n")) {
		lines = d.ending() + strings.TrimSuffix(lines, d.ending())
	}
	return splice{at, at, lines}, nil
}

// insertFlow writes an entry behind the list's bracket, as JSON is written.
func (d *document) insertFlow(i insertion, values *yaml.Node) (splice, error) {
	at, ok := d.offset(values)
	text, err := flow(i.item)
	if !ok || err != nil || d.data[at] != '[' {
		return splice{}, fmt.Errorf("%w: %s", ErrLayout, i.list)
	}
	if len(values.Content) > 0 {
		text += ","
	}
	return splice{at + 1, at + 1, text}, nil
}

// flow returns an entry in one line, which both JSON and YAML read.
func flow(item any) (string, error) {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(item); err != nil {
		return "", err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// nothing returns the word, such as null, that the file has in place of an empty
// list.
func (d *document) nothing(list string) (raw string, written bool) {
	value := d.word(d.root, list)
	if value == nil || value.Kind != yaml.ScalarNode || value.Tag != "!!null" || value.Value == "" {
		return "", false
	}
	return value.Value, true
}

// delete removes an entry from a list; nothing is the word that the file had in place
// of the empty list, if any.
func (d *document) delete(list, name, nothing string) (splice, error) {
	values, item := d.word(d.root, list), d.item(list, name)
	if values.Style&yaml.FlowStyle != 0 {
		return d.deleteFlow(list, values, item, nothing)
	}
	first := item.Line
	text := d.line(first)
	dash := strings.IndexByte(text, '-')
	if dash < 0 || strings.TrimLeft(text[:dash], " ") != "" || item.Anchor != "" {
		return splice{}, fmt.Errorf("%w: %s", ErrLayout, list)
	}
	last := first
	for n := first + 1; n <= len(d.lines); n++ {
		line := d.line(n)
		content := strings.TrimLeft(line, " ")
		if content == "" || content[0] == '#' { // of the entry only when more of it follows
			continue
		}
		if len(line)-len(content) <= dash {
			break
		}
		last = n
	}
	s := splice{d.lines[first-1], d.after(last), ""}
	if s.to == len(d.data) && !bytes.HasSuffix(d.data, []byte("\n")) {
		s.from -= len(d.ending()) // the entry follows a line that had no line end
	}
	if s.from < 0 {
		return splice{}, fmt.Errorf("%w: %s", ErrLayout, list)
	}
	return s, nil
}

// deleteFlow removes an entry that is written as JSON.
func (d *document) deleteFlow(list string, values, item *yaml.Node, nothing string) (splice, error) {
	unable := fmt.Errorf("%w: %s", ErrLayout, list)
	from, ok := d.offset(item)
	if !ok || d.data[from] != '{' {
		return splice{}, unable
	}
	decoder := json.NewDecoder(bytes.NewReader(d.data[from:]))
	var skipped json.RawMessage
	if err := decoder.Decode(&skipped); err != nil {
		return splice{}, unable // it was rewritten, not as JSON
	}
	to := from + int(decoder.InputOffset())
	start, ok := d.offset(values)
	if !ok || d.data[start] != '[' {
		return splice{}, unable
	}
	before := bytes.TrimRight(d.data[:from], " \t\r\n")
	after := bytes.TrimLeft(d.data[to:], " \t\r\n")
	switch {
	case bytes.HasPrefix(d.data[to:], []byte(",")):
		return splice{from, to + 1, ""}, nil
	case bytes.HasPrefix(after, []byte(",")):
		return splice{from, len(d.data) - len(after) + 1, ""}, nil
	case bytes.HasSuffix(before, []byte(",")):
		return splice{len(before) - 1, to, ""}, nil
	case nothing != "" && start+1 == from && bytes.HasPrefix(d.data[to:], []byte("]")):
		return splice{start, to + 1, nothing}, nil
	}
	return splice{from, to, ""}, nil
}

// span returns where a scalar begins and ends. The end is known only for
// scalars of one line without an anchor and a tag.
func (d *document) span(node *yaml.Node) (from, to int, ok bool) {
	if node == nil || node.Kind != yaml.ScalarNode || node.Anchor != "" || node.Style&yaml.TaggedStyle != 0 {
		return 0, 0, false
	}
	from, ok = d.offset(node)
	if !ok {
		return 0, 0, false
	}
	rest := d.line(node.Line)[from-d.lines[node.Line-1]:]
	length := -1
	switch {
	case node.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
	case node.Style&yaml.DoubleQuotedStyle != 0:
		length = len(doubleQuoted.FindString(rest))
	case node.Style&yaml.SingleQuotedStyle != 0:
		length = len(singleQuoted.FindString(rest))
	case strings.HasPrefix(rest, node.Value):
		length = len(node.Value)
	}
	return from, from + length, length > 0
}

var (
	doubleQuoted = regexp.MustCompile(`^"(?:[^"\\]|\\.)*"`)
	singleQuoted = regexp.MustCompile(`^'(?:[^']|'')*'`)
)

// replace replaces a scalar with raw text.
func (d *document) replace(node *yaml.Node, raw, word string) (splice, error) {
	from, to, ok := d.span(node)
	if !ok {
		return splice{}, fmt.Errorf("%w: %s is missing, empty, or written in a way of its own", ErrLayout, word)
	}
	return splice{from, to, raw}, nil
}

// plain matches values that need no quotes, in block and in flow style.
var plain = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9._@/-]*$`)

// rewrite replaces a scalar with another value and stores the old text in raw. It
// keeps double quotes, which JSON needs.
func (d *document) rewrite(node *yaml.Node, value, word string, raw *string) (splice, error) {
	s, err := d.replace(node, "", word)
	if err != nil {
		return splice{}, err
	}
	*raw = string(d.data[s.from:s.to])
	quoted, err := json.Marshal(value)
	if err != nil {
		return splice{}, err
	}
	s.text = string(quoted)
	usual, err := yaml.Marshal(value)
	if err == nil && string(usual) == value+"\n" && plain.MatchString(value) && (*raw)[0] != '"' {
		s.text = value
	}
	return s, nil
}
