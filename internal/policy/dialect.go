package policy

import (
	"maps"
	"slices"

	"holdfast/internal/strictyaml"
)

// A dialect is the vocabulary of the policies of one program. Agent and broker share
// the words about callers and none about what is requested: a rule that can never
// match is a mistake, and is reported when the file is read.
type dialect struct {
	program    string // its name in errors
	operations []Operation
	groups     map[string]operationSet // the words that stand for several operations
	words      func(*parser, *rule) map[string]func(*strictyaml.Node)
	check      func(*parser, *strictyaml.Node, *rule, map[string]*strictyaml.Node)
}

func agentDialect() dialect {
	return dialect{
		program:    "an agent",
		operations: Operations(),
		groups:     map[string]operationSet{wordUse: use, wordManage: manage, wordAll: keyed | keyless},
		words:      (*parser).agentWords,
		check:      (*parser).checkAgentRule,
	}
}

func brokerDialect() dialect {
	return dialect{
		program:    "a broker",
		operations: BrokerOperations(),
		groups:     map[string]operationSet{wordCredentials: credentials, wordAll: credentials | setOf(Status)},
		words:      (*parser).brokerWords,
		check:      (*parser).checkBrokerRule,
	}
}

// operationsOf returns the operations that a word in a rule stands for, and false
// for an unknown word.
func (d dialect) operationsOf(word string) (operationSet, bool) {
	if set, ok := d.groups[word]; ok {
		return set, true
	}
	if !slices.Contains(d.operations, Operation(word)) {
		return 0, false
	}
	return setOf(Operation(word)), true
}

// vocabulary lists the words for operations, those for several first.
func (d dialect) vocabulary() []Operation {
	var words []Operation
	for _, group := range slices.Backward(slices.Sorted(maps.Keys(d.groups))) {
		words = append(words, Operation(group))
	}
	return append(words, d.operations...)
}

// agentWords are the words of an agent's rules about the request.
func (p *parser) agentWords(r *rule) map[string]func(*strictyaml.Node) {
	return map[string]func(*strictyaml.Node){
		"keys":      func(n *strictyaml.Node) { r.keys = list(p, n, p.keyPattern) },
		"owner":     func(n *strictyaml.Node) { r.owner = p.owner(n) },
		"socket":    func(n *strictyaml.Node) { r.socket = p.socket(n) },
		"for-uids":  func(n *strictyaml.Node) { r.forUIDs = list(p, n, p.id) },
		"for-users": func(n *strictyaml.Node) { r.forUsers = list(p, n, p.user) },
		"for-units": func(n *strictyaml.Node) { r.forUnits = list(p, n, p.unit) },
	}
}

func (p *parser) checkAgentRule(node *strictyaml.Node, r *rule, found map[string]*strictyaml.Node) {
	aboutKeys := found["keys"] != nil || found["owner"] != nil
	switch {
	case aboutKeys && r.operations != keyed|keyless && r.operations&keyless != 0:
		p.Errorf(node, "list-cards, manage-cards, status and audit concern no key: give them a rule without keys and owner")
	case found["allow"] != nil && found["owner"] == nil && r.operations&keyed != 0:
		p.Errorf(node, "the rule does not say whose keys: owner: self, machine, any or a uid")
	}
	for _, word := range []string{"for-uids", "for-users", "for-units"} {
		switch {
		case found[word] == nil:
			continue
		case r.operations&^reported != 0:
			p.Errorf(found[word], "%s goes with sign-tls-client and unlock only: no other operation is requested on behalf of a user", word)
		case found["deny"] != nil && found["anyone"] != nil:
			p.Errorf(found[word], "a caller without a report may act for anyone, so this rule would deny every caller: name the reporting callers instead of anyone")
		}
		return
	}
}

// brokerWords are the words of a broker's rules about the request.
func (p *parser) brokerWords(r *rule) map[string]func(*strictyaml.Node) {
	return map[string]func(*strictyaml.Node){
		"profiles": func(n *strictyaml.Node) { r.profiles = list(p, n, p.profilePattern) },
	}
}

func (p *parser) checkBrokerRule(node *strictyaml.Node, r *rule, found map[string]*strictyaml.Node) {
	switch {
	case found["profiles"] != nil && r.operations != credentials|setOf(Status) && r.operations&keyless != 0:
		p.Errorf(node, "status concerns no profile: give it a rule without profiles")
	case found["allow"] != nil && found["profiles"] == nil && r.operations&credentials != 0:
		p.Errorf(node, "the rule does not say which profiles: profiles: [NAME], or [\"*\"] for all")
	}
}
