package main

import (
	"encoding/json"
	"testing"

	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

// Under --json an error is one JSON object on stderr, and stdout stays empty.
func TestJSONErrors(t *testing.T) {
	agent, c := withAlice(t)
	agent.Fail(agentwire.UnlockKey, &fault.Error{Kind: fault.PINRequired, Message: "the key is locked", Next: fault.Next{Do: fault.Unlock, Key: "alice"}})
	for _, test := range []struct {
		args []string
		want jsonError
	}{
		{[]string{"unlock", "alice", "--json"}, jsonError{Error: "the key is locked", Kind: fault.PINRequired, ExitCode: exitPerson}},
		{[]string{"certificate", "show", "alice", "--pem", "--json"}, jsonError{Error: "--pem and --json exclude each other", ExitCode: exitUsage}},
		{[]string{"key", "create", "x", "--json"}, jsonError{Error: "--purpose is missing", ExitCode: exitUsage}},
		{[]string{"policy", "check", "--json", "--file", "/nonexistent/x"}, jsonError{Error: "policy: stat /nonexistent/x: no such file or directory", ExitCode: exitFailed}},
	} {
		got := c.run(test.args...)
		var e jsonError
		if err := json.Unmarshal([]byte(got.stderr), &e); err != nil || got.stdout != "" {
			t.Errorf("%v: %v in %+v", test.args, err, got)
		}
		if e.Error != test.want.Error || e.Kind != test.want.Kind || e.ExitCode != test.want.ExitCode || e.ExitCode != got.code || e.Hint == "" {
			t.Errorf("%v: got %+v, want %+v", test.args, e, test.want)
		}
	}
}

// Commands that change something say under --json what they changed.
func TestJSONChanges(t *testing.T) {
	_, c := withAlice(t)
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"lock", "alice"}, `{"locked":["alice"]}`},
		{[]string{"lock"}, `{"locked":[]}`},
		{[]string{"key", "delete", "alice", "--yes"}, `{"deleted":"alice"}`},
	} {
		got := c.run(append(test.args, "--json")...)
		var v any
		if err := json.Unmarshal([]byte(got.stdout), &v); err != nil {
			t.Errorf("%v: %v in %+v", test.args, err, got)
		}
		if compact, _ := json.Marshal(v); string(compact) != test.want {
			t.Errorf("%v: got %s, want %s", test.args, compact, test.want)
		}
	}
}
