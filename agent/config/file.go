package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"

	"holdfast/internal/guard"
)

// MaxFile is the size of the largest configuration file, in bytes.
const MaxFile = 1 << 20

// Load reads the configuration file at path. A file that somebody else could
// have written is refused, see [guard.CheckFile].
func Load(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := guard.CheckOpen(f); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, MaxFile+1))
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// Parse reads a configuration file's text; name stands for the file in errors
// and origins. It returns every fault that it finds, each as "name:line: fault",
// joined into one error. Settings that the file does not give keep their zero
// values.
func Parse(name string, data []byte) (*Config, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s: longer than %d bytes", name, MaxFile)
	}
	c := empty()
	c.file = name
	root, err := document(name, data)
	if err != nil || root == nil {
		return c, err
	}
	r := reader{file: name, config: c, left: map[string]setting{}}
	for _, s := range settings() {
		r.left[s.name] = s
	}
	r.mapping(root, "")
	if len(r.faults) > 0 {
		return nil, errors.Join(r.faults...)
	}
	return c, nil
}

// reader fills a Config from YAML nodes and collects what is wrong with them.
type reader struct {
	file   string
	config *Config
	left   map[string]setting // the settings that have not been read yet
	faults []error
}

func (r *reader) fault(at *yaml.Node, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("%s:%d: %s", r.file, at.Line, fmt.Sprintf(format, args...)))
}

// mapping reads a mapping whose words have prefix before their names.
func (r *reader) mapping(node *yaml.Node, prefix string) {
	if node.Kind != yaml.MappingNode || node.Tag != "!!map" {
		r.fault(node, "lines of \"word: value\" are wanted here")
		return
	}
	limitsSeen := false
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if prefix == "" && key.Value == "limits" && !limitsSeen {
			limitsSeen = true
			r.mapping(value, "limits.")
			continue
		}
		r.value(key, value, prefix)
	}
}

// value reads one setting. It is taken off the list of those that are left even
// when its value is faulty, so that one mistake gives one error.
func (r *reader) value(key, value *yaml.Node, prefix string) {
	name := prefix + key.Value
	s, found := r.left[name]
	nested := prefix == "" && strings.Contains(key.Value, ".") // limits.x is no word by itself
	switch {
	case !found && r.config.origins[name] != "":
		r.fault(key, "%s is there already", name)
	case !found, nested, key.Kind != yaml.ScalarNode, key.Tag != "!!str":
		r.fault(key, "there is no setting %.80q", name)
	case value.Kind != yaml.ScalarNode || value.Tag != string(s.kind):
		r.fault(value, "%s: a %s is wanted here", name, nouns[s.kind])
	default:
		delete(r.left, name)
		r.config.origins[name] = fmt.Sprintf("%s:%d", r.file, value.Line)
		if err := s.set(r.config, value.Value); err != nil {
			r.fault(value, "%s: %v", name, err)
		}
	}
}

// nouns is never written to.
var nouns = map[kind]string{text: "text", integer: "number", boolean: "true or false"}

// yamlLine finds the line in the YAML library's errors, "yaml: line 3: text".
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?`)

// document returns the one YAML document in data, or nil when the file holds
// nothing but comments. It stays a tree of nodes: only they still know their
// lines, their tags, and keys that are there twice.
func document(name string, data []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var node, rest yaml.Node
	if err := decoder.Decode(&node); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, syntaxError(name, err)
	}
	switch err := decoder.Decode(&rest); {
	case err == nil:
		return nil, fmt.Errorf("%s:%d: a second document", name, rest.Line)
	case !errors.Is(err, io.EOF):
		return nil, syntaxError(name, err)
	}
	return node.Content[0], nil
}

func syntaxError(name string, err error) error {
	text, line := err.Error(), "1"
	if found := yamlLine.FindStringSubmatch(text); found != nil {
		text = text[len(found[0]):]
		if found[1] != "" {
			line = found[1]
		}
	}
	return fmt.Errorf("%s:%s: %s", name, line, text)
}
