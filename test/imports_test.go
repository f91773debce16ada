// Package test holds what is true of the module as a whole: who may import whom,
// what the binaries are made of, how the source reads, and that the documents
// and the examples say what the code does. Start at [rules].
//
// The helpers for other packages' tests are in the directories below this one.
package test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const (
	module = "holdfast"

	goTPM    = "github.com/google/go-tpm"
	keyfiles = "github.com/foxboron/go-tpm-keyfiles"
	yaml     = "go.yaml.in/yaml/v3"
	xsys     = "golang.org/x/sys"
	grpc     = "google.golang.org/grpc"
	pivGo    = "github.com/go-piv/piv-go/v2"
	dbus     = "github.com/godbus/dbus/v5"

	goKeyring = "github.com/zalando/go-keyring"
)

// A rule binds the packages of some rooms. A package path stands for the package
// alone, or with /... for everything below it too. Paths of this module are
// written without the module's name.
type rule struct {
	why     string   // the reason, shown when the rule is broken
	rooms   []string // whom it binds
	except  []string // whom it does not bind
	only    []string // besides the standard library, the only packages they may import
	never   []string // what they may not import
	reach   []string // what they may not depend on, however indirectly
	planned bool     // the rooms are not built yet
}

var rules = []rule{
	{
		why:   "internal holds what several rooms share: it stands below all of them, so no import leads back up",
		rooms: []string{"internal/..."},
		never: []string{"agent/...", "client/...", "tpm/...", "piv/..."},
	},
	{
		why:   "kinds of failure are known to the tiniest program: the standard library, and no cryptography",
		rooms: []string{"internal/fault"},
		only:  []string{},
		reach: []string{"crypto/...", "net/..."},
	},
	{
		why:   "the vocabulary is shared by every room, so it depends on errors alone",
		rooms: []string{"internal/keys"},
		only:  []string{"internal/fault"},
	},
	{
		why:   "message parses what attackers send: the standard library and the vocabulary are all it needs",
		rooms: []string{"internal/message"},
		only:  []string{"internal/keys", "internal/fault"},
	},
	{
		why:   "both sides of a socket share its types, so these depend on the vocabulary alone",
		rooms: []string{"internal/agentwire", "internal/brokerwire"},
		only:  []string{"internal/keys", "internal/fault", "internal/metrics"},
	},
	{
		why:   "the tiny plugins read the broker's types: they must not bring cryptography along",
		rooms: []string{"internal/brokerwire"},
		never: []string{"internal/keys"},
		reach: []string{"crypto/tls/...", "crypto/x509/...", "net/http/..."},
	},
	{
		why:   "counting must not be able to fail, block or reach anything",
		rooms: []string{"internal/metrics"},
		only:  []string{},
	},
	{
		why:   "text from elsewhere is made printable in programs of every size: the standard library alone",
		rooms: []string{"internal/printable"},
		only:  []string{},
	},
	{
		why:   "what /proc says decides who a caller is: it is read by system calls alone",
		rooms: []string{"internal/proc"},
		only:  []string{xsys + "/unix"},
	},
	{
		why:   "configuration is read in one strict way, which knows the YAML library and nothing of what the words mean",
		rooms: []string{"internal/strictyaml"},
		only:  []string{yaml},
	},
	{
		why:   "a process and its files are made safe before anything else is known",
		rooms: []string{"internal/guard"},
		only:  []string{xsys + "/unix"},
	},
	{
		why:   "a lock is a file that only its owner can have written",
		rooms: []string{"internal/lockfile"},
		only:  []string{"internal/guard"},
	},
	{
		why:   "agent and broker accept connections in one careful way, before anything of the caller is read",
		rooms: []string{"internal/door"},
		only:  []string{"internal/fault", "internal/lockfile", "internal/peer", "internal/guard", xsys + "/unix"},
	},
	{
		why:   "the frame of a daemon knows sockets, settings and policy, and nothing that the daemon serves",
		rooms: []string{"internal/daemon"},
		only: []string{
			"internal/fault", "internal/door", "internal/guard", "internal/notify", "internal/peer", "internal/policy", "internal/strictyaml",
		},
	},
	{
		why:   "every client connects with care, even the tiniest",
		rooms: []string{"internal/dial"},
		only:  []string{"internal/varlink", "internal/fault"},
	},
	{
		why:   "a kubectl command waits for the plugin's start: it is small, and opens the broker's socket alone",
		rooms: []string{"client/holdfast-exec-plugin", "client/execcredential"},
		only: []string{
			"internal/varlink", "internal/dial", "internal/fault", "internal/brokerwire", "internal/printable", "client/execcredential", xsys + "/unix",
		},
		reach: []string{"net/http/...", "crypto/tls/...", "crypto/x509/..."},
	},
	{
		why:   "profiles and kubeconfigs are files: reading and editing them needs no network and no agent",
		rooms: []string{"client/profile", "client/kubeconfig/..."},
		only: []string{
			yaml, "internal/atomicfile", "internal/keys", "internal/fault", "internal/guard", "internal/strictyaml", "client/profile", "client/kubeconfig",
		},
	},
	{
		why:   "only a person's command writes a kubeconfig: plugin, broker and renewal cannot break one, or be used to",
		rooms: []string{"..."}, except: []string{"client/holdfast", "client/kubeconfig/edit"},
		never: []string{"client/kubeconfig/edit"},
	},
	{
		why:   "a kubeconfig is chosen by the person who handed it over: the broker and the plugin read none",
		rooms: []string{"client/holdfast-broker", "client/broker/...", "client/holdfast-exec-plugin"},
		never: []string{"client/kubeconfig/..."},
	},
	{
		why:   "enrolment and renewal belong to any program: they print nothing, ask nothing and write no kubeconfig",
		rooms: []string{"client/enroll"},
		only: []string{
			"internal/keys", "internal/fault", "internal/agentwire", "client", "client/profile", "client/kubeconfig",
			"client/exchange/kubernetes/...",
		},
		reach: []string{"github.com/spf13/..."},
	},
	{
		why:   "an exchange turns a way to sign in into a credential; it does not know which key signs",
		rooms: []string{"client/exchange/..."},
		only:  []string{"internal/printable"},
	},
	{
		why:   "tickets are about processes and sockets, and nothing that can be talked into more",
		rooms: []string{"client/broker/ticket"},
		only:  []string{"internal/keys", "internal/fault", "internal/peer", "internal/proc", "internal/printable", xsys + "/unix"},
	},
	{
		why:   "varlink is for any program to copy or import",
		rooms: []string{"internal/varlink"},
		only:  []string{},
	},
	{
		why:   "the caller is identified before anything else runs, by system calls alone",
		rooms: []string{"internal/peer"},
		only:  []string{"internal/proc", "internal/printable", xsys + "/unix"},
	},
	{
		why:   "policy and configuration are read and decided without a device, a socket or a clock of their own",
		rooms: []string{"internal/policy", "agent/config"},
		only: []string{
			yaml, "internal/keys", "internal/fault", "internal/peer", "internal/guard", "internal/strictyaml", "internal/daemon",
		},
	},
	{
		why:   "a backend knows the vocabulary and its device, so that either can be left out of a build",
		rooms: []string{"tpm"},
		only:  []string{"internal/keys", "internal/fault", goTPM + "/...", keyfiles + "/...", xsys + "/unix"},
	},
	{
		why:   "a backend knows the vocabulary and its device, so that either can be left out of a build",
		rooms: []string{"piv/..."}, except: []string{"piv/holdfast-piv/..."},
		only: []string{"internal/keys", "internal/fault", "piv/wire", "piv/attestation", xsys + "/unix"},
	},
	{
		why:   "the process next to the card knows the card and its protocol with the agent, and nothing of callers",
		rooms: []string{"piv/holdfast-piv/..."},
		only: []string{
			"C", "internal/keys", "internal/fault", "internal/guard", "piv/wire", "piv/holdfast-piv/...", pivGo + "/...", xsys + "/unix",
		},
		reach: []string{"net/http/..."},
	},
	{
		why:   "PC/SC means cgo, and calls that cannot be stopped: both stay in the process that can be killed",
		rooms: []string{"..."}, except: []string{"piv/holdfast-piv/...", "test/..."},
		never: []string{"C", pivGo + "/..."},
		reach: []string{pivGo + "/..."},
	},
	{
		why:   "prompts know the words and the desktop's bus, and neither keys nor devices",
		rooms: []string{"agent/prompt", "agent/logind", "internal/keyring"},
		only: []string{
			"internal/keys", "internal/fault", "internal/bus", "internal/proc", dbus, goKeyring, xsys + "/unix",
		},
	},
	{
		why:   "a remembered PIN is kept in the keyring and asked for by a prompt: nothing else is needed",
		rooms: []string{"agent/remember"},
		only:  []string{"internal/keyring", "agent/prompt"},
	},
	{
		why:   "the desktop's bus is a way in: few rooms listen to it",
		rooms: []string{"..."}, except: []string{"agent/prompt", "agent/logind", "internal/keyring", "internal/bus", "test/..."},
		never: []string{dbus + "/...", goKeyring + "/..."},
	},
	{
		why:   "grants are decided by their own state and the clock alone, and a queue by who waits",
		rooms: []string{"agent/grants", "agent/queue"},
		only:  []string{"internal/fault"},
	},
	{
		why:   "only holdfast-agent's main joins the agent with its devices",
		rooms: []string{"agent/..."}, except: []string{"agent/holdfast-agent"},
		never: []string{"tpm/...", "piv/..."},
	},
	{
		why:   "agent and client are two sides of a socket, and neither is built from the other",
		rooms: []string{"agent/..."},
		never: []string{"client/..."},
	},
	{
		why:   "a client is another process, with none of the agent's rights: it speaks to the socket",
		rooms: []string{"client/..."},
		never: []string{"agent/...", "tpm/...", "piv/..."},
	},
	{
		why:   "a backend is driven by the agent through the vocabulary: it knows neither agent nor clients",
		rooms: []string{"tpm/...", "piv/..."},
		never: []string{"agent/...", "client/..."},
	},
	{
		why:   "gRPC is half a megabyte of parser that only kube-apiserver wants to talk to",
		rooms: []string{"..."}, except: []string{"client/jwtsigner/...", "test/..."},
		never: []string{grpc + "/..."},
	},
	{
		why:   "programs count with internal/metrics, which cannot fail; rendering the counts takes a third of a million lines",
		rooms: []string{"..."}, except: []string{"client/holdfast", "test/..."},
		never: []string{"github.com/prometheus/..."},
		reach: []string{"github.com/prometheus/...", "google.golang.org/protobuf/..."},
	},
	{
		why:   "HTTP belongs to the processes that hold no key",
		rooms: []string{"..."}, except: []string{
			"client/exchange/...", "client/broker/...", "client/enroll", "client/holdfast-broker", "client/holdfast", "test/...",
		},
		never: []string{"net/http/..."},
	},
	{
		why:   "the process that holds the keys parses no HTTP and no gRPC, not even by accident of a library",
		rooms: []string{"agent/holdfast-agent", "tpm/..."},
		reach: []string{"net/http/...", grpc + "/..."},
	},
	{
		why:   "go-tpm's old API knows no typed sessions; the two must not meet on one device",
		rooms: []string{"..."},
		never: []string{goTPM + "/legacy/..."},
	},
	{
		why:   "test helpers have no place in a product",
		rooms: []string{"agent/holdfast-agent", "client/holdfast", "client/holdfast-broker", "client/holdfast-exec-plugin"},
		reach: []string{
			"test/...", "internal/keys/keystest", "client/clienttest", "internal/varlink/varlinktest", "testing/...",
			"github.com/google/go-tpm-tools/...", "github.com/rogpeppe/go-internal/...", "go.uber.org/goleak/...",
		},
	},
}

// matches reports whether pattern, a path with or without /..., covers path.
func matches(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	tree, below := strings.CutSuffix(pattern, "/...")
	return path == tree || below && strings.HasPrefix(path, tree+"/")
}

func matchesAny(patterns []string, path string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return matches(p, path) })
}

func (r rule) binds(p pack) bool {
	return p.ours() && matchesAny(r.rooms, p.room()) && !matchesAny(r.except, p.room())
}

// violations returns one line for each import that breaks a rule.
func violations(rules []rule, graph []pack) []string {
	std := map[string]bool{}
	for _, p := range graph {
		std[p.ImportPath] = p.Standard
	}
	var found []string
	report := func(p pack, verb, path string, r rule) {
		found = append(found, fmt.Sprintf("%s %s %s: %s", p.room(), verb, path, r.why))
	}
	for _, r := range rules {
		for _, p := range graph {
			if !r.binds(p) {
				continue
			}
			for _, path := range p.Imports {
				foreign := r.only != nil && !std[path] && !matchesAny(r.only, short(path))
				if foreign || matchesAny(r.never, short(path)) {
					report(p, "imports", path, r)
				}
			}
			for _, path := range p.Deps {
				if matchesAny(r.reach, short(path)) {
					report(p, "depends on", path, r)
				}
			}
		}
	}
	return found
}

func TestImports(t *testing.T) {
	for _, v := range violations(rules, packages(t)) {
		t.Error(v)
	}
}

// TestEveryRuleCanFail breaks each rule once, in a made-up module, and binds each
// to a package that exists: a rule that nothing can break proves nothing.
func TestEveryRuleCanFail(t *testing.T) {
	graph := packages(t)
	for _, r := range rules {
		bound := slices.ContainsFunc(graph, r.binds)
		if bound == r.planned {
			t.Errorf("rule for %v binds a package: %v; planned: %v", r.rooms, bound, r.planned)
		}
		for _, bad := range fabricate(r) {
			if got := violations([]rule{r}, []pack{bad, {ImportPath: "fmt", Standard: true}}); len(got) != 1 {
				t.Errorf("rule for %v finds %q in %+v, want one violation", r.rooms, got, bad)
			}
		}
	}
}

// clean returns a package that r binds and that imports nothing.
func clean(r rule) pack {
	room := strings.TrimSuffix(r.rooms[0], "/...")
	if room == "..." || matchesAny(r.except, room) {
		room = "somewhere"
	}
	p := pack{ImportPath: module + "/" + room}
	p.Module = &struct {
		Path     string
		Main     bool
		Indirect bool
	}{Path: module, Main: true}
	return p
}

// fabricate returns one package for each way to break r, each breaking it once.
func fabricate(r rule) []pack {
	var bad []pack
	with := func(imports, deps []string) {
		p := clean(r)
		p.Imports, p.Deps = append(imports, "fmt"), append(deps, "fmt")
		bad = append(bad, p)
	}
	if r.only != nil {
		with([]string{"example.org/elsewhere"}, nil)
	}
	for _, pattern := range r.never {
		with([]string{strings.TrimSuffix(pattern, "/...")}, nil)
	}
	for _, pattern := range r.reach {
		with(nil, []string{strings.TrimSuffix(pattern, "/...")})
	}
	return bad
}
