package policy

import (
	"math"
	"strings"
	"unicode"

	"holdfast/internal/keys"
	"holdfast/internal/peer"
	"holdfast/internal/strictyaml"
)

// ruleName reads a name that can stand in an audit record: one printable line
// that cannot be taken for "default" or for the number of a rule without a name.
func (p *parser) ruleName(node *strictyaml.Node) string {
	name, ok := p.Text(node, "the name of the rule")
	unprintable := strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) })
	reserved := strings.HasPrefix(name, "#") || name == "default"
	if ok && (strings.TrimSpace(name) != name || name == "" || len(name) > 100 || unprintable || reserved) {
		p.Errorf(node, "%s cannot be the name of a rule", strictyaml.Quote(node))
	}
	return name
}

func (p *parser) operations(node *strictyaml.Node) operationSet {
	var set operationSet
	for _, s := range list(p, node, p.operation) {
		set |= s
	}
	return set
}

func (p *parser) operation(node *strictyaml.Node) (operationSet, bool) {
	word, ok := p.Text(node, "an operation")
	if !ok {
		return 0, false
	}
	set, ok := p.dialect.operationsOf(word)
	if !ok {
		p.Errorf(node, "there is no operation %s for %s; there are %s", strictyaml.Quote(node), p.dialect.program, joined(p.dialect.vocabulary()))
	}
	return set, ok
}

func (p *parser) anyone(node *strictyaml.Node) bool {
	if node.Tag != "!!bool" || node.Value != "true" {
		p.Errorf(node, "anyone is true or is left out")
		return false
	}
	return true
}

// id reads a uid or gid.
func (p *parser) id(node *strictyaml.Node) (uint32, bool) {
	n, ok := p.Int(node, "a number", 0, math.MaxUint32)
	if ok && outsider(uint32(n)) {
		p.Errorf(node, "%d stands for every uid that the kernel cannot map: no rule may use it", n)
		return 0, false
	}
	return uint32(n), ok
}

// user resolves a name when the policy is read, so that Decide needs no lookup. A
// user whose uid changes is known by it after the next reload.
func (p *parser) user(node *strictyaml.Node) (user, bool) {
	name, ok := p.Text(node, "the name of a user")
	if !ok {
		return user{}, false
	}
	uid, ok := p.names.UID(name)
	if !ok {
		p.Errorf(node, "there is no user %s", strictyaml.Quote(node))
		return user{}, false
	}
	if outsider(uid) {
		p.Errorf(node, "user %s has uid %d, which stands for every uid that the kernel cannot map", strictyaml.Quote(node), uid)
		return user{}, false
	}
	return user{name: name, uid: uid}, true
}

func (p *parser) group(node *strictyaml.Node) (uint32, bool) {
	name, ok := p.Text(node, "the name of a group")
	if !ok {
		return 0, false
	}
	gid, ok := p.names.GID(name)
	if !ok {
		p.Errorf(node, "there is no group %s", strictyaml.Quote(node))
		return 0, false
	}
	if outsider(gid) {
		p.Errorf(node, "group %s has gid %d, which stands for every gid that the kernel cannot map", strictyaml.Quote(node), gid)
		return 0, false
	}
	return gid, true
}

// unit rejects a name that can never match, so that a typing error is reported when
// the policy is read, and not when a service is denied.
func (p *parser) unit(node *strictyaml.Node) (string, bool) {
	name, ok := p.Text(node, "the name of a unit")
	if ok && !peer.IsUnit(name) {
		p.Errorf(node, "%s is not the whole name of a service or scope, such as kubelet.service", strictyaml.Quote(node))
		return "", false
	}
	return name, ok
}

// keyPattern reads the name of a key set, or the beginning of one and "*".
func (p *parser) keyPattern(node *strictyaml.Node) (pattern, bool) {
	word, ok := p.Text(node, "the name of a key")
	if !ok {
		return pattern{}, false
	}
	text, prefix := strings.CutSuffix(word, "*")
	// The beginning of a name may end in a dash; one more letter makes it a name.
	name := text
	if prefix {
		name += "x"
	}
	switch {
	case keys.CheckName(name) != nil:
		p.Errorf(node, "%s is not a key's name, nor the beginning of one and \"*\"", strictyaml.Quote(node))
		return pattern{}, false
	case keys.SetOf(text) != text:
		p.Errorf(node, "%s is one generation of a key; rules are about the set, %s", strictyaml.Quote(node), keys.SetOf(text))
		return pattern{}, false
	}
	return pattern{text: text, prefix: prefix}, true
}

// profilePattern reads the name of a profile, or the beginning of one and "*".
func (p *parser) profilePattern(node *strictyaml.Node) (pattern, bool) {
	word, ok := p.Text(node, "the name of a profile")
	if !ok {
		return pattern{}, false
	}
	text, prefix := strings.CutSuffix(word, "*")
	name := text
	if prefix {
		name += "x"
	}
	if !isProfile(name) {
		p.Errorf(node, "%s is not a profile's name, nor the beginning of one and \"*\"", strictyaml.Quote(node))
		return pattern{}, false
	}
	return pattern{text: text, prefix: prefix}, true
}

// isProfile reports whether name can be the name of a profile: a DNS label (RFC 1123,
// section 2.1), because the loopback proxy receives it as one.
func isProfile(name string) bool {
	strange := strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	})
	return name != "" && len(name) <= 63 && !strange && name[0] != '-' && name[len(name)-1] != '-'
}

func (p *parser) owner(node *strictyaml.Node) owner {
	if node.Tag == "!!str" {
		switch node.Value {
		case "any":
			return owner{kind: ownerAny}
		case "self":
			return owner{kind: ownerSelf}
		case "machine":
			return owner{kind: ownerUID, uid: 0}
		}
	}
	if node.Tag != "!!int" {
		p.Errorf(node, "self, machine, any or a uid is wanted here, not %s", strictyaml.Quote(node))
		return owner{}
	}
	uid, _ := p.id(node)
	return owner{kind: ownerUID, uid: uid}
}

func (p *parser) socket(node *strictyaml.Node) socket {
	switch word, ok := p.Text(node, "use or admin"); {
	case !ok:
	case word == "use":
		return useSocket
	case word == "admin":
		return adminSocket
	default:
		p.Errorf(node, "use or admin is wanted here, not %s", strictyaml.Quote(node))
	}
	return eitherSocket
}

func joined(list []Operation) string {
	words := make([]string, len(list))
	for i, op := range list {
		words[i] = string(op)
	}
	return strings.Join(words, ", ")
}
