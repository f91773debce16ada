package profile

import "holdfast/internal/strictyaml"

// A reader fills a Profile from YAML nodes. Words have their section's name before
// them: "cluster.server".
type reader struct {
	*strictyaml.Reader
	lines  map[string]int  // where each word was found
	faulty map[string]bool // words whose values could not be read
}

// take reads the value of one word and reports whether it could.
type take func(word string, value *strictyaml.Node) bool

// section reads a mapping; the root's word is empty.
func (r *reader) section(words map[string]take) take {
	return func(section string, node *strictyaml.Node) bool {
		what, prefix := "a profile", ""
		if section != "" {
			what, prefix = section, section+"."
		}
		fields := map[string]func(*strictyaml.Node){}
		for name, read := range words {
			fields[name] = func(value *strictyaml.Node) { r.faulty[prefix+name] = !read(prefix+name, value) }
		}
		found := r.Fields(node, what, fields)
		for name, at := range found {
			r.lines[prefix+name] = at.Line
		}
		return found != nil
	}
}

// value reads a value that want describes in errors.
func value[T any](into *T, want string, read func(node *strictyaml.Node, what string) (T, bool)) take {
	return func(word string, node *strictyaml.Node) (ok bool) {
		*into, ok = read(node, word+": "+want)
		return ok
	}
}

func (r *reader) text(into *string) take { return value(into, "a string", r.nonempty) }

func (r *reader) nonempty(node *strictyaml.Node, what string) (string, bool) {
	text, ok := r.Text(node, what)
	if ok && text == "" {
		r.Errorf(node, "%s, not an empty one", strictyaml.Expected(what))
		ok = false
	}
	return text, ok
}

func (r *reader) texts(into *[]string) take {
	return func(word string, node *strictyaml.Node) (ok bool) {
		*into, ok = strictyaml.List(r.Reader, node, word+": a list", func(item *strictyaml.Node) (string, bool) {
			return r.nonempty(item, word+": a string")
		})
		return ok
	}
}

// port rejects 0: a profile without a port of its own leaves the word out.
func (r *reader) port(into *int) take {
	return func(word string, node *strictyaml.Node) bool {
		n, ok := r.Int(node, word+": a port from 1 to 65535", 1, 65535)
		*into = int(n)
		return ok
	}
}

// fraction reads a fraction above 0, which would stand for the default.
func (r *reader) fraction(node *strictyaml.Node, what string) (float64, bool) {
	f, ok := r.Float(node, what)
	if ok && f == 0 {
		r.Errorf(node, "%s, not 0", strictyaml.Expected(what))
		ok = false
	}
	return f, ok
}
