package main

import (
	"encoding/json"
	"strings"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
	"holdfast/internal/policy"
)

func TestPolicyCheck(t *testing.T) {
	agent := clienttest.Start(t)
	c := command{socket: agent.Socket}
	agent.Policy = agentwire.CheckPolicyReply{Allowed: true, Rule: "own keys", Reason: "built-in: the rule allows list"}
	question := []string{"policy", "check", "--uid", "7", "--gid", "8", "--gid", "9", "--unit", "x.service", "--key", "alice", "--operation", "sign-tls-client"}
	c.run(question...).want(t, 0, "allowed", "own keys", "built-in")
	var p agentwire.CheckPolicyParameters
	check(t, json.Unmarshal(agent.Calls(agentwire.CheckPolicy)[0].Parameters, &p))
	if p.UID != 7 || len(p.GIDs) != 2 || p.GIDs[1] != 9 || p.Unit != "x.service" || p.Key != "alice" || p.Operation != "sign-tls-client" {
		t.Errorf("got %+v on the wire", p)
	}
	c.run(append(question, "--for-uid", "0", "--for-unit", "y.service")...).want(t, 0, "allowed")
	var reported agentwire.CheckPolicyParameters
	check(t, json.Unmarshal(agent.Calls(agentwire.CheckPolicy)[1].Parameters, &reported))
	if p.ForUID != nil || reported.ForUID == nil || *reported.ForUID != 0 || reported.ForUnit != "y.service" {
		t.Errorf("got %+v on the wire, then %+v", p, reported)
	}
	c.run(append(question, "--for-unit", "y.service")...).want(t, 2, "--for-unit goes with --for-uid")
	agent.Policy = agentwire.CheckPolicyReply{Rule: "default", Reason: "no rule matches"}
	got := c.run(question...)
	if got.code != 4 || got.stderr != "" {
		t.Errorf("denied: got %+v, want code 4 and an answer on stdout alone", got)
	}
	var answer agentwire.CheckPolicyReply
	check(t, json.Unmarshal([]byte(c.run(append(question, "--json")...).stdout), &answer))
	if answer != agent.Policy {
		t.Errorf("--json: got %+v", answer)
	}
	agent.Fail(agentwire.CheckPolicy, &fault.Error{Kind: fault.Denied, Message: "only root may ask"})
	c.run(question...).want(t, 4, "only root may ask")
}

// A question about a key has to name one; what concerns no key needs none.
func TestPolicyCheckWithoutKey(t *testing.T) {
	agent := clienttest.Start(t)
	agent.Policy.Allowed = true
	for _, op := range policy.Operations() {
		got := command{socket: agent.Socket}.run("policy", "check", "--uid", "0", "--operation", string(op))
		if op == policy.Status || op == policy.Audit {
			got.want(t, 0, "allowed")
		} else {
			got.want(t, 2, "--key is missing")
		}
	}
}

const testPolicy = `version: 1
rules:
  - name: web
    allow: [sign-tls-server]
    uids: [33]
    keys: [web]
    owner: machine
  - name: own
    allow: [use]
    gids: [44]
    owner: self
`

func TestPolicyFile(t *testing.T) {
	good := file(t, []byte(testPolicy))
	bad := file(t, []byte("version: 1\nrules:\n  - allow: [fly]\n    anyone: true\n"))
	ask := func(args ...string) result { return command{}.run(append([]string{"policy", "check"}, args...)...) }
	ask("--file", good).want(t, 0, "valid, ")
	ask("--file", bad).want(t, 1, bad+":3", "fly")
	worse := file(t, []byte("version: 1\nrules:\n  - allow: [fly]\n    anyone: true\n  - allow: [swim]\n    anyone: true\n"))
	got := ask("--file", worse)
	got.want(t, 1, "holdfast: error: "+worse+":3", "\nholdfast: error: "+worse+":5")
	for line := range strings.Lines(got.stderr) {
		if !strings.HasPrefix(line, "holdfast: ") {
			t.Errorf("got the line %q", line)
		}
	}
	ask("--file", "/nonexistent").want(t, 1, "no such file", "hint: name a file")
	ask("--file", good, "--uid", "33", "--key", "web", "--operation", "sign-tls-server", "--owner", "0").want(t, 0, "allowed", "web", good+":3")
	ask("--file", good, "--uid", "12", "--gid", "44", "--key", "x", "--operation", "sign-tls-client").want(t, 0, "own")
	// Each of these differs from an allowed one in one thing.
	for _, args := range [][]string{
		{"--uid", "34", "--key", "web", "--operation", "sign-tls-server", "--owner", "0"},
		{"--uid", "33", "--key", "web", "--operation", "sign-tls-client", "--owner", "0"},
		{"--uid", "33", "--key", "web", "--operation", "sign-tls-server"},
		{"--uid", "12", "--key", "x", "--operation", "sign-tls-client"},
		{"--uid", "12", "--gid", "44", "--key", "x", "--operation", "sign-tls-client", "--owner", "13"},
	} {
		if got := ask(append(args, "--file", good)...); got.code != 4 || got.stderr != "" {
			t.Errorf("%v: got %+v, want a denial", args, got)
		}
	}
}

func TestPolicyFileNarrowsByReport(t *testing.T) {
	path := file(t, []byte("version: 1\nrules:\n  - allow: [sign-tls-client]\n    uids: [33]\n    owner: any\n    for-uids: [44]\n    for-units: [x.service]\n"))
	ask := func(args ...string) result {
		return command{}.run(append([]string{"policy", "check", "--file", path, "--uid", "33", "--key", "web", "--operation", "sign-tls-client"}, args...)...)
	}
	ask("--for-uid", "44", "--for-unit", "x.service").want(t, 0, "allowed")
	for _, args := range [][]string{{}, {"--for-uid", "44"}, {"--for-uid", "45", "--for-unit", "x.service"}, {"--for-uid", "44", "--for-unit", "y.service"}} {
		if got := ask(args...); got.code != 4 {
			t.Errorf("%v: got %+v, want a denial", args, got)
		}
	}
}

func TestPolicyFileOfABroker(t *testing.T) {
	path := file(t, []byte("version: 1\nrules:\n  - name: dev\n    allow: [proxy]\n    gids: [44]\n    profiles: [dev]\n"))
	ask := func(args ...string) result {
		return command{}.run(append([]string{"policy", "check", "--broker", "--file", path}, args...)...)
	}
	ask().want(t, 0, "valid, ")
	command{}.run("policy", "check", "--file", path).want(t, 1, path+":4", "an agent keeps its old policy")
	command{}.run("policy", "check", "--broker", "--file", file(t, []byte(testPolicy))).want(t, 1, "for a broker", "a broker keeps its old policy")
	ask("--uid", "7", "--gid", "44", "--profile", "dev", "--operation", "proxy").want(t, 0, "allowed", "dev", path+":3")
	for _, args := range [][]string{
		{"--uid", "7", "--profile", "dev", "--operation", "proxy"},
		{"--uid", "7", "--gid", "44", "--profile", "prod", "--operation", "proxy"},
		{"--uid", "7", "--gid", "44", "--profile", "dev", "--operation", "token"},
		{"--uid", "7", "--gid", "44", "--operation", "status"},
	} {
		if got := ask(args...); got.code != 4 {
			t.Errorf("%v: got %+v, want a denial", args, got)
		}
	}
	ask("--uid", "7", "--operation", "proxy").want(t, 2, "--profile is missing")
	ask("--uid", "7", "--operation", "list").want(t, 2, "there is no operation", "proxy, certificate, token, status")
	ask("--uid", "7", "--operation", "proxy", "--profile", "dev", "--key", "web").want(t, 2, "for an agent's policy")
	command{}.run("policy", "check", "--broker", "--uid", "7", "--operation", "status").want(t, 2, "--broker is for --file")
	command{}.run("policy", "check", "--uid", "7", "--operation", "status", "--profile", "dev").want(t, 2, "--profile is for --broker")
}
