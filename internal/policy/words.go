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
	uid, ok := p.named(node, "user", "uid", p.names.UID)
	return user{name: node.Value, uid: uid}, ok
}

func (p *parser) group(node *strictyaml.Node) (uint32, bool) {
	return p.named(node, "group", "gid", p.names.GID)
}

// named reads the name of a user or group and returns its number.
func (p *parser) named(node *strictyaml.Node, what, number string, resolve func(string) (uint32, bool)) (uint32, bool) {
	name, ok := p.Text(node, "the name of a "+what)
	if !ok {
		return 0, false
	}
	id, ok := resolve(name)
	if !ok {
		p.Errorf(node, "there is no %s %s", what, strictyaml.Quote(node))
		return 0, false
	}
	if outsider(id) {
		p.Errorf(node, "%s %s has %s %d, which stands for every %s that the kernel cannot map", what, strictyaml.Quote(node), number, id, number)
		return 0, false
	}
	return id, true
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

// pattern reads a name, or the beginning of one and "*". It also returns the shortest
// name that the pattern matches: the beginning of a name may end in a dash, and one
// more letter makes it a name.
func (p *parser) pattern(node *strictyaml.Node, what string) (found pattern, name string, ok bool) {
	word, ok := p.Text(node, what)
	found.text, found.prefix = strings.CutSuffix(word, "*")
	if found.prefix {
		return found, found.text + "x", ok
	}
	return found, found.text, ok
}

// keyPattern reads the name of a key set, or the beginning of one and "*".
func (p *parser) keyPattern(node *strictyaml.Node) (pattern, bool) {
	found, name, ok := p.pattern(node, "the name of a key")
	switch {
	case !ok:
	case keys.CheckName(name) != nil:
		p.Errorf(node, "%s is not a key's name, nor the beginning of one and \"*\"", strictyaml.Quote(node))
	case keys.SetOf(found.text) != found.text:
		p.Errorf(node, "%s is one generation of a key; rules are about the set, %s", strictyaml.Quote(node), keys.SetOf(found.text))
	default:
		return found, true
	}
	return pattern{}, false
}

// profilePattern reads the name of a profile, or the beginning of one and "*".
func (p *parser) profilePattern(node *strictyaml.Node) (pattern, bool) {
	found, name, ok := p.pattern(node, "the name of a profile")
	if ok && !isProfile(name) {
		p.Errorf(node, "%s is not a profile's name, nor the beginning of one and \"*\"", strictyaml.Quote(node))
	}
	return found, ok && isProfile(name)
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
		p.Errorf(node, "expected self, machine, any or a uid, not %s", strictyaml.Quote(node))
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
		p.Errorf(node, "expected use or admin, not %s", strictyaml.Quote(node))
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
