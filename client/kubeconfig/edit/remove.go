package edit

import (
	"fmt"
	"reflect"
	"slices"

	"holdfast/client/kubeconfig"
)

// Remove returns the text without the entry that Add added under name, and with the
// text that it replaced. A current context that was chosen since stays.
func Remove(data []byte, name string) ([]byte, error) {
	d, err := parse(data)
	if err != nil {
		return nil, err
	}
	record := d.record(name)
	if record == nil {
		return nil, fmt.Errorf("there is no user named %.80q that holdfast has added", name)
	}
	var all []splice
	context := name
	if record.Cluster != "" {
		context = record.Context
		for word, raw := range map[string]string{"cluster": record.Cluster, "user": record.User} {
			node := d.contextWord(context, word)
			if node == nil || node.Value != name {
				continue // it was changed since, or the context is gone
			}
			s, err := d.replace(node, raw, word)
			if err != nil {
				return nil, err
			}
			all = append(all, s)
		}
	}
	if record.CurrentContext != "" && d.file.CurrentContext == context {
		s, err := d.replace(d.word(d.root, "current-context"), record.CurrentContext, "current-context")
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	for _, list := range lists {
		if d.item(list, name) == nil || list == "contexts" && record.Cluster != "" {
			continue
		}
		s, err := d.delete(list, name, record.Lists[list])
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	restored, err := d.apply(all)
	if err != nil {
		return nil, err
	}
	if _, err := kubeconfig.Parse("the result", restored); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayout, err)
	}
	before, err := rest(data, name, record.Context)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLayout, err)
	}
	after, err := rest(restored, name, record.Context)
	if err != nil || !reflect.DeepEqual(before, after) {
		return nil, fmt.Errorf("%w: the content of the rest would change", ErrLayout)
	}
	return restored, nil
}

// rest returns the content of a text without the parts that Add and Remove change.
func rest(data []byte, name, context string) (map[string]any, error) {
	fields, err := meaning(data)
	if err != nil {
		return nil, err
	}
	if entry, _ := entryNamed(fields["contexts"], context)["context"].(map[string]any); entry != nil {
		delete(entry, "cluster")
		delete(entry, "user")
	}
	delete(fields, "current-context")
	for _, list := range lists {
		entries, _ := fields[list].([]any)
		entries = slices.DeleteFunc(entries, func(e any) bool {
			entry, _ := e.(map[string]any)
			return entry["name"] == name
		})
		if fields[list] = entries; len(entries) == 0 {
			delete(fields, list)
		}
	}
	return fields, nil
}
