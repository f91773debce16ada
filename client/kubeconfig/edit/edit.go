// Package edit changes kubeconfig files and keeps the rest of the text: comments,
// order, anchors, layout and unknown words stay byte for byte, because it edits the
// text instead of writing a new file.
//
// Start at [Add] and [Remove], which work on the text, and [File], which replaces a
// file with the result. Remove undoes Add byte for byte. Before it returns, Add
// checks that, and the content of the result, and rejects a layout that it cannot
// edit.
//
// Only the holdfast command's kubeconfig commands import this package.
package edit

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"holdfast/client/kubeconfig"
)

// ErrLayout is in the chain of errors about files whose layout cannot be edited. The
// output of `kubectl config view --raw --flatten` can be.
var ErrLayout = errors.New("the layout of the file cannot be edited without touching the rest of it")

// Extension is the name of the extension that marks a user's entry as ours and holds
// the text that Remove restores.
const Extension = "holdfast"

// Record is the content of the extension.
type Record struct {
	Profile string `yaml:"profile" json:"profile"`
	Context string `yaml:"context" json:"context"` // the context that the entries were made from
	// The replaced texts; empty where nothing was replaced.
	Cluster        string            `yaml:"cluster,omitempty" json:"cluster,omitempty"`
	User           string            `yaml:"user,omitempty" json:"user,omitempty"`
	CurrentContext string            `yaml:"current-context,omitempty" json:"current-context,omitempty"`
	Lists          map[string]string `yaml:"lists,omitempty" json:"lists,omitempty"`
}

// RecordOf returns the record in a user's entry, or nil when the entry is not
// ours.
func RecordOf(user *kubeconfig.AuthInfo) *Record {
	for _, e := range user.Extensions {
		if e.Name != Extension {
			continue
		}
		text, err := yaml.Marshal(e.Extension)
		record := new(Record)
		if err != nil || yaml.Unmarshal(text, record) != nil || record.Profile == "" {
			return nil
		}
		return record
	}
	return nil
}

// Entry is the cluster and the user that Add adds and, unless they replace those of an
// existing context, a context, all of one name.
type Entry struct {
	Name      string
	Profile   string
	Context   string // the existing context
	Namespace string // of the new context
	Replace   bool   // change the existing context instead of adding one
	Use       bool   // make the context the current one
	Cluster   kubeconfig.Cluster
	User      kubeconfig.AuthInfo
}

// Add returns the text with an entry. It first removes an entry of ours with this
// name, so that adding again changes it; one that is not ours is an error. A change
// that cannot be undone byte for byte is an error too, with [ErrLayout] in its chain.
func Add(data []byte, e *Entry) ([]byte, error) {
	doc, err := parse(data)
	if err != nil {
		return nil, err
	}
	if doc.record(e.Name) != nil {
		if data, err = Remove(data, e.Name); err != nil {
			return nil, err
		}
		if doc, err = parse(data); err != nil {
			return nil, err
		}
	}
	if err := doc.vacant(e); err != nil {
		return nil, err
	}
	edited, err := doc.add(e)
	if err != nil {
		return nil, err
	}
	restored, err := Remove(edited, e.Name)
	if err != nil {
		return nil, fmt.Errorf("%w: undoing the change: %w", ErrLayout, err)
	}
	if !bytes.Equal(restored, data) {
		return nil, fmt.Errorf("%w: undoing the change would not restore the same bytes", ErrLayout)
	}
	return edited, nil
}

// lists are the words of the lists of entries; never written to.
var lists = [...]string{"clusters", "users", "contexts"}

// vacant returns an error when an entry that is not ours has the name already.
func (d *document) vacant(e *Entry) error {
	for _, list := range lists {
		if d.item(list, e.Name) != nil && (list != "contexts" || !e.Replace) {
			return fmt.Errorf("there is a %s named %.80q already, which is not holdfast's", strings.TrimSuffix(list, "s"), e.Name)
		}
	}
	if d.item("contexts", e.Context) == nil {
		return fmt.Errorf("there is no context named %.80q", e.Context)
	}
	return nil
}

func (d *document) add(e *Entry) ([]byte, error) {
	record := &Record{Profile: e.Profile, Context: e.Context, Lists: map[string]string{}}
	var all []splice
	context := e.Name
	if e.Replace {
		context = e.Context
		for _, r := range []struct {
			word string
			raw  *string
		}{{"cluster", &record.Cluster}, {"user", &record.User}} {
			s, err := d.rewrite(d.contextWord(e.Context, r.word), e.Name, r.word, r.raw)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	if e.Use && d.file.CurrentContext != context {
		s, err := d.rewrite(d.word(d.root, "current-context"), context, "current-context", &record.CurrentContext)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	for _, list := range lists {
		if raw, written := d.nothing(list); written {
			record.Lists[list] = raw
		}
	}
	if e.Replace {
		delete(record.Lists, "contexts")
	}
	user := e.User
	user.Extensions = append(slices.Clone(user.Extensions), kubeconfig.NamedExtension{Name: Extension, Extension: record})
	entries := []insertion{
		{"clusters", kubeconfig.NamedCluster{Name: e.Name, Cluster: &e.Cluster}},
		{"users", kubeconfig.NamedAuthInfo{Name: e.Name, AuthInfo: &user}},
		{"contexts", kubeconfig.NamedContext{Name: e.Name, Context: &kubeconfig.Context{Cluster: e.Name, AuthInfo: e.Name, Namespace: e.Namespace}}},
	}
	if e.Replace {
		entries = entries[:2]
	}
	for _, i := range entries {
		s, err := d.insert(i)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	edited, err := d.apply(all)
	if err != nil {
		return nil, err
	}
	return edited, d.saysAlso(edited, e, entries, context)
}

// saysAlso returns an error unless the edited text has the content of the document
// and of the added entries, and nothing else.
func (d *document) saysAlso(edited []byte, e *Entry, entries []insertion, context string) error {
	got, err := meaning(edited)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	}
	want, err := meaning(d.data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	}
	for _, i := range entries {
		item, err := generic(i.item)
		if err != nil {
			return err
		}
		old, _ := want[i.list].([]any)
		want[i.list] = append([]any{item}, old...)
	}
	if e.Replace {
		named := entryNamed(want["contexts"], e.Context)
		entry, _ := named["context"].(map[string]any)
		if entry == nil {
			return fmt.Errorf("%w: context %.80q", ErrLayout, e.Context)
		}
		entry["cluster"], entry["user"] = e.Name, e.Name
	}
	if e.Use {
		want["current-context"] = context
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%w: the result would have another content", ErrLayout)
	}
	return nil
}
