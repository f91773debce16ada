package policy

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"holdfast/internal/peer"
	"holdfast/internal/strictyaml"
)

// MaxFile is the size of the largest policy file, in bytes.
const MaxFile = strictyaml.MaxFile

// Names tells which numbers the users and groups in a policy have. A
// *peer.Names is one.
type Names interface {
	UID(user string) (uint32, bool)
	GID(group string) (uint32, bool)
}

var _ Names = (*peer.Names)(nil)

// ParseFile parses an agent's policy in the file at path.
func ParseFile(path string) (*Policy, error) { return parseFile(agentDialect(), path) }

// ParseBrokerFile parses a broker's policy in the file at path.
func ParseBrokerFile(path string) (*Policy, error) { return parseFile(brokerDialect(), path) }

func parseFile(d dialect, path string) (*Policy, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	if info.Size() > MaxFile {
		return nil, fmt.Errorf("%s: longer than %d bytes", path, MaxFile)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("policy: %w", err)
	}
	return d.parse(new(peer.Names), path, data)
}

// Parse parses an agent's policy whose users and groups are those of this machine; name
// stands for the file in errors and decisions.
func Parse(name string, data []byte) (*Policy, error) {
	return agentDialect().parse(new(peer.Names), name, data)
}

// parse returns every fault that it finds, each as "name:line: fault", joined into one
// error. A word of another dialect is a fault. It asks names about users and groups.
func (d dialect) parse(names Names, name string, data []byte) (*Policy, error) {
	r, root, err := strictyaml.Parse(name, data)
	if err != nil {
		return nil, err
	}
	p := &parser{Reader: r, file: name, names: names, dialect: d}
	policy := p.policy(root)
	if err := p.Err(); err != nil {
		return nil, err
	}
	return policy, nil
}

// parser turns YAML nodes into rules.
type parser struct {
	*strictyaml.Reader
	file    string
	names   Names
	dialect dialect
}

// list reads a list and leaves out the items with errors, which are recorded.
func list[T comparable](p *parser, node *strictyaml.Node, item func(*strictyaml.Node) (T, bool)) []T {
	items, _ := strictyaml.List(p.Reader, node, "a list", item)
	return items
}

func (p *parser) policy(root *strictyaml.Node) *Policy {
	policy := &Policy{source: p.file}
	var version, rules *strictyaml.Node
	found := p.Fields(root, "a policy", map[string]func(*strictyaml.Node){
		"version":           func(n *strictyaml.Node) { version = n },
		"accept-racy-units": func(n *strictyaml.Node) { policy.AcceptRacyUnits, _ = p.Bool(n, "") },
		"rules":             func(n *strictyaml.Node) { rules = n },
	})
	if found == nil {
		return nil
	}
	switch {
	case version == nil:
		p.Errorf(root, "version is missing; this program reads version: 1")
	case version.Tag != "!!int" || version.Value != "1":
		p.Errorf(version, "version %s is not known; this program reads version: 1", strictyaml.Quote(version))
	}
	switch {
	case rules == nil:
		p.Errorf(root, "rules are missing")
	case rules.Tag != "!!seq" || len(rules.Content) == 0:
		p.Errorf(rules, "rules must be a list of rules, each starting with \"- \"")
	default:
		policy.rules = p.rules(rules.Content)
	}
	return policy
}

// rules numbers the rules from 1 and rejects repeated names: a decision names its
// rule, and must name one rule only.
func (p *parser) rules(nodes []*strictyaml.Node) []rule {
	var rules []rule
	for i, node := range nodes {
		r := p.rule(node, i+1)
		if slices.ContainsFunc(rules, func(other rule) bool { return other.name == r.name }) {
			p.Errorf(node, "a rule named %q is there already", r.name)
		}
		rules = append(rules, r)
	}
	return rules
}

func (p *parser) rule(node *strictyaml.Node, number int) rule {
	r := rule{name: fmt.Sprintf("#%d", number), where: fmt.Sprintf("%s:%d", p.file, node.Line)}
	words := map[string]func(*strictyaml.Node){
		"name":   func(n *strictyaml.Node) { r.name = p.ruleName(n) },
		"allow":  func(n *strictyaml.Node) { r.allow, r.operations = true, p.operations(n) },
		"deny":   func(n *strictyaml.Node) { r.operations = p.operations(n) },
		"anyone": func(n *strictyaml.Node) { r.anyone = p.anyone(n) },
		"uids":   func(n *strictyaml.Node) { r.uids = list(p, n, p.id) },
		"users":  func(n *strictyaml.Node) { r.users = list(p, n, p.user) },
		"gids":   func(n *strictyaml.Node) { r.gids = list(p, n, p.id) },
		"groups": func(n *strictyaml.Node) { r.groups = list(p, n, p.group) },
		"units":  func(n *strictyaml.Node) { r.units = list(p, n, p.unit) },
	}
	maps.Copy(words, p.dialect.words(p, &r))
	found := p.Fields(node, "a rule of "+p.dialect.program, words)
	if found != nil {
		p.checkRule(node, &r, found)
	}
	return r
}

// checkRule checks the fields of a rule against each other. A field with a bad value
// counts as present, so that one mistake gives one error.
func (p *parser) checkRule(node *strictyaml.Node, r *rule, found map[string]*strictyaml.Node) {
	allow, deny := found["allow"] != nil, found["deny"] != nil
	if allow == deny {
		p.Errorf(node, "a rule has either allow or deny")
	}
	var callers []string
	for _, field := range []string{"uids", "users", "gids", "groups", "units"} {
		if found[field] != nil {
			callers = append(callers, field)
		}
	}
	switch {
	case found["anyone"] == nil && len(callers) == 0:
		p.Errorf(node, "the rule names no callers: users, uids, groups, gids, units, or anyone: true")
	case found["anyone"] != nil && len(callers) > 0:
		p.Errorf(found["anyone"], "anyone and %s contradict each other", strings.Join(callers, ", "))
	}
	p.dialect.check(p, node, r, found)
}
