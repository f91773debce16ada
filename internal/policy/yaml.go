package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// yamlLine finds the line in the YAML library's errors, "yaml: line 3: text".
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document returns the one YAML document in data. It stays a tree of nodes: only
// they still know their lines, their tags, and keys that are there twice. Aliases
// stay aliases, which no reader of a node takes, so nothing can be blown up.
func document(name string, data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node, rest yaml.Node
	if err := decoder.Decode(&node); err != nil {
		return nil, syntaxError(name, err)
	}
	switch err := decoder.Decode(&rest); {
	case err == nil:
		return nil, fmt.Errorf("%s:%d: a second document", name, rest.Line)
	case !errors.Is(err, io.EOF):
		return nil, syntaxError(name, err)
	}
	if node.Kind != yaml.DocumentNode || len(node.Content) != 1 {
		return nil, fmt.Errorf("%s:1: no document", name)
	}
	return node.Content[0], nil
}

func syntaxError(name string, err error) error {
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%s:1: the file is empty", name)
	}
	text := err.Error()
	found := yamlLine.FindStringSubmatch(text)
	if found == nil {
		return fmt.Errorf("%s:1: %s", name, text)
	}
	line := found[1]
	if line == "" {
		line = "1"
	}
	return fmt.Errorf("%s:%s: %s", name, line, text[len(found[0]):])
}

// fields hands each value of a mapping to the function for its key. It returns
// the values by key, or nil when node is no mapping. Unknown and repeated keys
// are faults.
func (p *parser) fields(node *yaml.Node, what string, known map[string]func(*yaml.Node)) map[string]*yaml.Node {
	if node.Kind != yaml.MappingNode || node.Tag != "!!map" {
		p.fault(node, "%s is a list of \"word: value\" lines, not %s", what, quote(node))
		return nil
	}
	found := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		read := known[key.Value]
		switch {
		case key.Kind != yaml.ScalarNode || key.Tag != "!!str" || read == nil:
			p.fault(key, "%s has no word %s; the words are %s", what, quote(key), strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		case found[key.Value] != nil:
			p.fault(key, "%s is there already, on line %d", key.Value, found[key.Value].Line)
		default:
			found[key.Value] = value
			read(value)
		}
	}
	return found
}

// list reads a list that has at least one item and none of them twice. Items
// that are faulty are left out.
func list[T comparable](p *parser, node *yaml.Node, item func(*yaml.Node) (T, bool)) []T {
	if node.Kind != yaml.SequenceNode || node.Tag != "!!seq" || len(node.Content) == 0 {
		p.fault(node, "this wants a list such as [one, two], with at least one item")
		return nil
	}
	var items []T
	for _, n := range node.Content {
		value, ok := item(n)
		if !ok {
			continue
		}
		if slices.Contains(items, value) {
			p.fault(n, "%s is in the list already", quote(n))
		}
		items = append(items, value)
	}
	return items
}

// text reads a word or a line of text.
func (p *parser) text(node *yaml.Node, what string) (string, bool) {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!str" {
		p.fault(node, "%s is wanted here, not %s", what, quote(node))
		return "", false
	}
	return node.Value, true
}

func (p *parser) boolean(node *yaml.Node) bool {
	if node.Kind != yaml.ScalarNode || node.Tag != "!!bool" || node.Value != "true" && node.Value != "false" {
		p.fault(node, "true or false is wanted here, not %s", quote(node))
		return false
	}
	return node.Value == "true"
}

// quote shows a node in an error.
func quote(node *yaml.Node) string {
	switch node.Kind {
	case yaml.MappingNode:
		return "a mapping"
	case yaml.SequenceNode:
		return "a list"
	case yaml.AliasNode:
		return "an alias"
	}
	if node.Tag == "!!null" {
		return "nothing"
	}
	return fmt.Sprintf("%.80q", node.Value)
}
