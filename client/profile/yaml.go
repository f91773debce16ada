package profile

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

// yamlLine finds the line in the YAML library's errors, "yaml: line 3: text".
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document returns the one YAML document in data. It stays a tree of nodes: only
// they still know their lines, their tags, and words that are there twice. Aliases
// stay aliases, which no reader of a node takes, so nothing can be blown up.
func document(file string, data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node, rest yaml.Node
	if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s:1: the file is empty", file)
	} else if err != nil {
		return nil, syntaxError(file, err)
	}
	switch err := decoder.Decode(&rest); {
	case err == nil:
		return nil, fmt.Errorf("%s:%d: a second document", file, rest.Line)
	case !errors.Is(err, io.EOF):
		return nil, syntaxError(file, err)
	}
	return node.Content[0], nil
}

func syntaxError(file string, err error) error {
	text, line := err.Error(), "1"
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		text = text[len(found[0]):]
		if found[1] != "" {
			line = found[1]
		}
	}
	return fmt.Errorf("%s:%s: %s", file, line, text)
}

// reader fills a Profile from YAML nodes and collects what is wrong with them.
// Words have their section's name before them: "cluster.server".
type reader struct {
	file   string
	lines  map[string]int // where each word was found
	faulty map[string]bool
	faults []error
}

// take reads the value of one word.
type take func(word string, value *yaml.Node)

func (r *reader) fault(at *yaml.Node, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("%s:%d: %s", r.file, at.Line, fmt.Sprintf(format, args...)))
}

// unfit is the fault of a value that is of another kind than its word wants.
func (r *reader) unfit(word string, at *yaml.Node, want string) {
	r.faulty[word] = true
	r.fault(at, "%s: %s is wanted here", word, want)
}

// section reads a mapping. A word that is there twice is read once.
func (r *reader) section(words map[string]take) take {
	return func(section string, node *yaml.Node) {
		if node.Kind != yaml.MappingNode || node.Tag != "!!map" {
			r.faulty[section] = true
			r.fault(node, "%slines of \"word: value\" are wanted here", prefix(section, ": "))
			return
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			key, value := node.Content[i], node.Content[i+1]
			word, read := prefix(section, ".")+key.Value, words[key.Value]
			switch {
			case key.Kind != yaml.ScalarNode || key.Tag != "!!str" || read == nil:
				r.fault(key, "%sthere is no word %.80q; the words are %s", prefix(section, ": "), key.Value,
					strings.Join(slices.Sorted(maps.Keys(words)), ", "))
			case r.lines[word] != 0:
				r.fault(key, "%s is there already, on line %d", word, r.lines[word])
			default:
				r.lines[word] = key.Line
				read(word, value)
			}
		}
	}
}

func prefix(section, separator string) string {
	if section == "" {
		return ""
	}
	return section + separator
}

func scalar(node *yaml.Node, tag string) bool {
	return node.Kind == yaml.ScalarNode && node.Tag == tag
}

func (r *reader) text(into *string) take {
	return func(word string, node *yaml.Node) {
		if !scalar(node, "!!str") || node.Value == "" {
			r.unfit(word, node, "text")
			return
		}
		*into = node.Value
	}
}

func (r *reader) texts(into *[]string) take {
	return func(word string, node *yaml.Node) {
		if node.Kind != yaml.SequenceNode || node.Tag != "!!seq" || len(node.Content) == 0 {
			r.unfit(word, node, "a list such as [one, two]")
			return
		}
		for _, item := range node.Content {
			if !scalar(item, "!!str") || item.Value == "" {
				r.unfit(word, item, "text")
				return
			}
			*into = append(*into, item.Value)
		}
	}
}

func (r *reader) boolean(into *bool) take {
	return func(word string, node *yaml.Node) {
		if !scalar(node, "!!bool") || node.Value != "true" && node.Value != "false" {
			r.unfit(word, node, "true or false")
			return
		}
		*into = node.Value == "true"
	}
}

// port takes plain decimal digits: YAML's octal, hexadecimal and underscores are
// traps for readers. Who wants no port leaves the word out.
func (r *reader) port(into *int) take {
	return func(word string, node *yaml.Node) {
		n, err := strconv.Atoi(node.Value)
		if !scalar(node, "!!int") || err != nil || strconv.Itoa(n) != node.Value || n == 0 {
			r.unfit(word, node, "a port from 1 to 65535")
			return
		}
		*into = n
	}
}

// fraction leaves 0 to words for which it is something else than nothing given.
func (r *reader) fraction(into *float64, zero bool) take {
	return func(word string, node *yaml.Node) {
		f, err := strconv.ParseFloat(node.Value, 64)
		number := scalar(node, "!!float") || scalar(node, "!!int")
		if !number || err != nil || strings.ContainsAny(node.Value, "_xX") || f == 0 && !zero {
			r.unfit(word, node, "a fraction such as 0.7")
			return
		}
		*into = f
	}
}

func (r *reader) duration(into *time.Duration) take {
	return func(word string, node *yaml.Node) {
		d, err := time.ParseDuration(node.Value)
		if !scalar(node, "!!str") || err != nil || d <= 0 {
			r.unfit(word, node, "a duration such as 90s, 10m or 24h")
			return
		}
		*into = d
	}
}
