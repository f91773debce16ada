package edit

import (
	"encoding/base64"
	"fmt"
	"reflect"

	"go.yaml.in/yaml/v3"
)

// SetServer returns the text with another server, and the PEM certificates that vouch for
// it, in a cluster's entry, which has to have both already.
func SetServer(data []byte, cluster, server, authority string) ([]byte, error) {
	d, err := parse(data)
	if err != nil {
		return nil, err
	}
	var entry *yaml.Node
	if item := d.item("clusters", cluster); item != nil {
		entry = d.word(item, "cluster")
	}
	if entry == nil {
		return nil, fmt.Errorf("there is no cluster named %.80q", cluster)
	}
	values := map[string]string{"server": server, "certificate-authority-data": base64.StdEncoding.EncodeToString([]byte(authority))}
	var all []splice
	for word, value := range values {
		var before string
		s, err := d.rewrite(d.word(entry, word), value, word, &before)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	edited, err := d.apply(all)
	if err != nil {
		return nil, err
	}
	return edited, d.saysInstead(edited, cluster, values)
}

// saysInstead returns an error unless the edited text has the values in the cluster's
// entry, and else the content of the document.
func (d *document) saysInstead(edited []byte, cluster string, values map[string]string) error {
	got, err := meaning(edited)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	}
	want, err := meaning(d.data)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrLayout, err)
	}
	entry, _ := entryNamed(want["clusters"], cluster)["cluster"].(map[string]any)
	for word, value := range values {
		if entry != nil {
			entry[word] = value
		}
	}
	if !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%w: the result would have another content", ErrLayout)
	}
	return nil
}
