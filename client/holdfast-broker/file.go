package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"go.yaml.in/yaml/v3"

	"holdfast/internal/guard"
)

// maxFile is the size of the largest configuration file, in bytes.
const maxFile = 1 << 20

// word is one line of the configuration file.
type word struct {
	value string
	where string // file:line
}

// load reads the configuration file at path. A file that somebody else could have
// written is refused.
func load(path string) (map[string]word, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := guard.CheckOpen(f); err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, err
	}
	return parse(path, data)
}

// parse reads a configuration file's text: lines of "word: value", each word a
// setting, each once. Errors are "file:line: fault", all of them.
func parse(name string, data []byte) (map[string]word, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: longer than %d bytes", name, maxFile)
	}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var document, rest yaml.Node
	if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if err := decoder.Decode(&rest); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: more than one document", name)
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s:%d: lines of \"word: value\" are wanted here", name, root.Line)
	}
	words, faults := map[string]word{}, []error{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, value := root.Content[i], root.Content[i+1]
		where := fmt.Sprintf("%s:%d", name, key.Line)
		if err := fit(key, value, words); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", where, err))
			continue
		}
		words[key.Value] = word{value.Value, where}
	}
	return words, errors.Join(faults...)
}

// fit returns an error unless key is a setting that is not among words yet, and
// value of its type.
func fit(key, value *yaml.Node, words map[string]word) error {
	for _, s := range settings() {
		if key.Kind != yaml.ScalarNode || key.Value != s.name {
			continue
		}
		if _, twice := words[s.name]; twice {
			return fmt.Errorf("%s is there already", s.name)
		}
		tag, noun := "!!str", "text"
		if s.boolean {
			tag, noun = "!!bool", "true or false"
		}
		if value.Kind != yaml.ScalarNode || value.Tag != tag {
			return fmt.Errorf("%s: a %s is wanted here", s.name, noun)
		}
		return nil
	}
	return fmt.Errorf("there is no setting %.80q", key.Value)
}
