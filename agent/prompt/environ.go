package prompt

import (
	"bytes"
	"regexp"
	"slices"
)

// grammars says which variables a pinentry may get, and what they may look like.
// None of them is a secret, names a program, or has anything loaded.
var grammars = map[string]*regexp.Regexp{
	"TERM":                     regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._+-]{0,63}$`),
	"LANG":                     locale,
	"LC_ALL":                   locale,
	"LC_CTYPE":                 locale,
	"LC_MESSAGES":              locale,
	"DISPLAY":                  regexp.MustCompile(`^[A-Za-z0-9.:_-]{1,128}$`),
	"WAYLAND_DISPLAY":          regexp.MustCompile(`^[A-Za-z0-9./_-]{1,128}$`),
	"XAUTHORITY":               absolute,
	"XDG_RUNTIME_DIR":          absolute,
	"HOME":                     absolute,
	"DBUS_SESSION_BUS_ADDRESS": regexp.MustCompile(`^unix:[!-~]{1,256}$`),
	"SSH_CONNECTION":           regexp.MustCompile(`^[^\x00]+$`),
	"SSH_TTY":                  regexp.MustCompile(`^[^\x00]+$`),
}

var (
	locale   = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._@-]{0,63}$`)
	absolute = regexp.MustCompile(`^/[ -~]{0,255}$`)
)

// variables are those of an environment that have a place here.
type variables map[string]string

// set keeps a variable that is known and well formed.
func (v variables) set(name, value string) {
	if grammar, known := grammars[name]; known && grammar.MatchString(value) {
		v[name] = value
	}
}

// parse keeps what an entry NAME=value says. The first of a name counts.
func (v variables) parse(entry []byte) {
	name, value, found := bytes.Cut(entry, []byte("="))
	if _, known := grammars[string(name)]; !found || !known || v[string(name)] != "" {
		return // not even a copy is made of what is none of our business
	}
	v.set(string(name), string(value))
}

// only returns the variables with these names as a program wants them.
func (v variables) only(names ...string) []string {
	var list []string
	for name, value := range v {
		if slices.Contains(names, name) {
			list = append(list, name+"="+value)
		}
	}
	slices.Sort(list)
	return list
}

// environOf returns the variables with which a process was started. One that
// keeps its memory to itself, as our own programs do, has the environment of
// whoever started it in the same session.
func environOf(p process) variables {
	v := variables{}
	for _, link := range ancestors(p, maxEnvironChain) {
		if link.session != p.session {
			break
		}
		text, err := readStart(link.pid, "environ")
		if err != nil {
			continue
		}
		for entry := range bytes.SplitSeq(text, []byte{0}) {
			v.parse(entry)
		}
		clear(text) // others put secrets there
		break
	}
	return v
}

// maxEnvironChain bounds how far up an environment is looked for.
const maxEnvironChain = 8

// remote reports whether the caller's person sits at another machine.
func (v variables) remote() bool { return v["SSH_CONNECTION"] != "" || v["SSH_TTY"] != "" }
