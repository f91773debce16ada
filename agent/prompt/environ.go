package prompt

import (
	"bytes"
	"regexp"
	"slices"

	"holdfast/internal/proc"
)

// grammars holds the variables that a pinentry may get, with their syntax. None of
// them is a secret, names a program, or makes a program load a file.
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

// variables are the entries of an environment that grammars names.
type variables map[string]string

// set stores a variable that is known and well formed.
func (v variables) set(name, value string) {
	if grammar, known := grammars[name]; known && grammar.MatchString(value) {
		v[name] = value
	}
}

// parse stores an entry NAME=value. The first entry of a name counts.
func (v variables) parse(entry []byte) {
	name, value, found := bytes.Cut(entry, []byte("="))
	if _, known := grammars[string(name)]; !found || !known || v[string(name)] != "" {
		return // other variables may be secret and are not even copied
	}
	v.set(string(name), string(value))
}

// only returns the variables with these names in the form of exec.Cmd's Env.
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

// environOf returns the variables with which a process was started. For a process
// whose memory is not readable, such as one of our own programs, it returns those
// of the nearest readable ancestor in the same session.
func environOf(p proc.Stat) variables {
	v := variables{}
	for _, link := range ancestors(p, maxEnvironChain) {
		if link.Session != p.Session {
			break
		}
		text, err := readStart(link.PID, "environ")
		if err != nil {
			continue
		}
		for entry := range bytes.SplitSeq(text, []byte{0}) {
			v.parse(entry)
		}
		clear(text) // environments may hold secrets
		break
	}
	return v
}

// maxEnvironChain bounds how many ancestors environOf tries.
const maxEnvironChain = 8

// remote reports whether the caller belongs to a login from another machine.
func (v variables) remote() bool { return v["SSH_CONNECTION"] != "" || v["SSH_TTY"] != "" }
