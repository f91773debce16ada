package policy

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"holdfast/internal/peer"
)

// MaxFile is the size of the largest policy file, in bytes.
const MaxFile = 1 << 20

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
// stands for the file in errors and decisions. See [ParseWith].
func Parse(name string, data []byte) (*Policy, error) {
	return ParseWith(new(peer.Names), name, data)
}

// ParseWith parses an agent's policy and asks names about its users and groups.
// It returns every fault that it finds, each as "name:line: fault", joined into
// one error. What only a broker's policy can say is a fault.
func ParseWith(names Names, name string, data []byte) (*Policy, error) {
	return agentDialect().parse(names, name, data)
}

// ParseBrokerWith parses a broker's policy as [ParseWith] does an agent's. What
// only an agent's policy can say is a fault.
func ParseBrokerWith(names Names, name string, data []byte) (*Policy, error) {
	return brokerDialect().parse(names, name, data)
}

func (d dialect) parse(names Names, name string, data []byte) (*Policy, error) {
	if len(data) > MaxFile {
		return nil, fmt.Errorf("%s: longer than %d bytes", name, MaxFile)
	}
	root, err := document(name, data)
	if err != nil {
		return nil, err
	}
	p := &parser{file: name, names: names, dialect: d}
	policy := p.policy(root)
	if len(p.faults) > 0 {
		return nil, errors.Join(p.faults...)
	}
	return policy, nil
}

// parser turns YAML nodes into rules and collects what is wrong with them.
type parser struct {
	file    string
	names   Names
	dialect dialect
	faults  []error
}

// fault records what is wrong at a node. The parser goes on, to find the rest.
func (p *parser) fault(at *yaml.Node, format string, args ...any) {
	p.faults = append(p.faults, fmt.Errorf("%s:%d: %s", p.file, at.Line, fmt.Sprintf(format, args...)))
}

func (p *parser) policy(root *yaml.Node) *Policy {
	policy := &Policy{source: p.file}
	var version, rules *yaml.Node
	p.fields(root, "a policy", map[string]func(*yaml.Node){
		"version":           func(n *yaml.Node) { version = n },
		"accept-racy-units": func(n *yaml.Node) { policy.AcceptRacyUnits = p.boolean(n) },
		"rules":             func(n *yaml.Node) { rules = n },
	})
	switch {
	case version == nil:
		p.fault(root, "version is missing; this program reads version: 1")
	case version.Tag != "!!int" || version.Value != "1":
		p.fault(version, "version %s is not known; this program reads version: 1", quote(version))
	}
	switch {
	case rules == nil:
		p.fault(root, "rules are missing")
	case rules.Kind != yaml.SequenceNode || len(rules.Content) == 0:
		p.fault(rules, "rules want a list of rules, each starting with \"- \"")
	default:
		policy.rules = p.rules(rules.Content)
	}
	return policy
}

// rules gives each rule its number, counted from 1 as a reader counts, and keeps
// names apart: a decision that names one of two rules would send its reader to the
// wrong one.
func (p *parser) rules(nodes []*yaml.Node) []rule {
	var rules []rule
	for i, node := range nodes {
		r := p.rule(node, i+1)
		if slices.ContainsFunc(rules, func(other rule) bool { return other.name == r.name }) {
			p.fault(node, "a rule named %q is there already", r.name)
		}
		rules = append(rules, r)
	}
	return rules
}

func (p *parser) rule(node *yaml.Node, number int) rule {
	r := rule{name: fmt.Sprintf("#%d", number), where: fmt.Sprintf("%s:%d", p.file, node.Line)}
	words := map[string]func(*yaml.Node){
		"name":   func(n *yaml.Node) { r.name = p.ruleName(n) },
		"allow":  func(n *yaml.Node) { r.allow, r.operations = true, p.operations(n) },
		"deny":   func(n *yaml.Node) { r.operations = p.operations(n) },
		"anyone": func(n *yaml.Node) { r.anyone = p.anyone(n) },
		"uids":   func(n *yaml.Node) { r.uids = list(p, n, p.id) },
		"users":  func(n *yaml.Node) { r.users = list(p, n, p.user) },
		"gids":   func(n *yaml.Node) { r.gids = list(p, n, p.id) },
		"groups": func(n *yaml.Node) { r.groups = list(p, n, p.group) },
		"units":  func(n *yaml.Node) { r.units = list(p, n, p.unit) },
	}
	maps.Copy(words, p.dialect.words(p, &r))
	found := p.fields(node, "a rule of "+p.dialect.program, words)
	if found != nil {
		p.checkRule(node, &r, found)
	}
	return r
}

// checkRule looks at what the fields of a rule say together. A field whose value
// was faulty counts as given, so that one mistake gives one error.
func (p *parser) checkRule(node *yaml.Node, r *rule, found map[string]*yaml.Node) {
	allow, deny := found["allow"] != nil, found["deny"] != nil
	if allow == deny {
		p.fault(node, "a rule has either allow or deny")
	}
	var who []string
	for _, field := range []string{"uids", "users", "gids", "groups", "units"} {
		if found[field] != nil {
			who = append(who, field)
		}
	}
	switch {
	case found["anyone"] == nil && len(who) == 0:
		p.fault(node, "the rule does not say who: users, uids, groups, gids, units, or anyone: true")
	case found["anyone"] != nil && len(who) > 0:
		p.fault(found["anyone"], "anyone and %s contradict each other", strings.Join(who, ", "))
	}
	p.dialect.check(p, node, r, found)
}
