package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/internal/agentwire"
	"holdfast/internal/fault"
)

func TestAuditTail(t *testing.T) {
	agent := clienttest.Start(t)
	agent.Records = []string{
		`{"time":"2026-01-02T03:04:05Z","seq":1,"kind":"decision","caller":{"uid":7,"user":"alice","pid":8},"operation":"sign-tls-client","key":"alice","decision":"allow","rule":"own keys"}`,
		`{"time":"2026-01-02T03:04:05Z","seq":2,"kind":"outcome","operation":"sign-tls-client","outcome":"ok","detail":{"b":"2","a":"1"}}`,
		`{"time":"2026-01-02T03:04:06Z","seq":3,"kind":"stop"}`,
		`{"time":"2026-01-02T03:04:07Z","seq":4,"kind":"decision","caller":{"uid":9,"user":"broker","pid":10,"reported":{"uid":1234567,"pid":12,"start":13,"unit":"x.service"}},"decision":"allow"}`,
	}
	c := command{socket: agent.Socket}
	c.run("audit", "tail", "-n", "3").want(t, 0, "TIME", "allow", "sign-tls-client", "alice (uid 7), process 8", "own keys", "ok", `"a":"1","b":"2"`, "stop",
		"uid 1234567, process 12, unit x.service reported by broker (uid 9), process 10")
	if got := c.run("audit", "tail", "--json"); got.stdout != strings.Join(agent.Records, "\n")+"\n" {
		t.Errorf("--json: got %q", got.stdout)
	}
	var p agentwire.TailAuditParameters
	check(t, json.Unmarshal(agent.Calls(agentwire.TailAudit)[0].Parameters, &p))
	if p.Records != 3 {
		t.Errorf("asked for %d records", p.Records)
	}
	agent.Records = []string{"nonsense"}
	c.run("audit", "tail").want(t, 1, "nonsense")
}

func TestAuditVerify(t *testing.T) {
	agent := clienttest.Start(t)
	agent.Records = []string{"{}", "{}"}
	c := command{socket: agent.Socket}
	c.run("audit", "verify").want(t, 0, "2 records, unbroken; head 00")
	c.run("audit", "verify", "--json").want(t, 0, `"records": 2`)
	agent.Fail(agentwire.VerifyAudit, &fault.Error{Kind: fault.BadRequest, Message: "the audit log was changed: line 3"})
	c.run("audit", "verify").want(t, 1, "line 3")
}

// makeLog writes a log of n records and its anchor.
func makeLog(t *testing.T, n int) string {
	t.Helper()
	var log bytes.Buffer
	head := strings.Repeat("0", 64)
	for i := range n {
		line := fmt.Sprintf(`{"time":"2026-01-02T03:04:05Z","seq":%d,"kind":"decision","prev":"%s"}`, i+1, head)
		head = fmt.Sprintf("%x", sha256.Sum256([]byte(line)))
		log.WriteString(line + "\n")
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	check(t, os.WriteFile(path, log.Bytes(), 0o600))
	check(t, os.WriteFile(path+".anchor", fmt.Appendf(nil, `{"seq":%d,"head":"%s","bytes":%d}`+"\n", n, head, log.Len()), 0o600))
	return path
}

// Each case starts from a log that verifies and changes one thing.
func TestAuditFile(t *testing.T) {
	tests := map[string]struct {
		change func(lines []string) []string
		want   string // empty: it verifies
	}{
		"nothing":            {func(l []string) []string { return l }, ""},
		"a line edited":      {func(l []string) []string { l[1] = strings.Replace(l[1], "decision", "decisioN", 1); return l }, ":3: the log was changed"},
		"a line removed":     {func(l []string) []string { return append(l[:1], l[2:]...) }, ":2: the log was changed: record 3"},
		"lines exchanged":    {func(l []string) []string { l[1], l[2] = l[2], l[1]; return l }, ":2: the log was changed: record 3"},
		"the end cut off":    {func(l []string) []string { return l[:3] }, ":4: the log was changed: the log ends after record 3, and had 4"},
		"the last edited":    {func(l []string) []string { l[3] = strings.Replace(l[3], "decision", "outcome", 1); return l }, ":4: the log was changed: not the record that the anchor names"},
		"a line added":       {func(l []string) []string { return append(l, l[3]) }, ":5: the log was changed"},
		"no record":          {func(l []string) []string { l[2] = "x"; return l }, ":3: the log was changed: not a record"},
		"a line without end": {func(l []string) []string { l[2] = strings.Repeat("x", maxRecord); return l }, ":3: the log was changed: longer"},
	}
	for name, test := range tests {
		path := makeLog(t, 4)
		data, err := os.ReadFile(path)
		check(t, err)
		lines := test.change(strings.Split(strings.TrimSpace(string(data)), "\n"))
		check(t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600))
		got := command{}.run("audit", "verify", "--file", path)
		switch {
		case test.want == "" && (got.code != 0 || !strings.Contains(got.stdout, "4 records")):
			t.Errorf("%s: got %+v", name, got)
		case test.want != "" && (got.code != 1 || !strings.Contains(got.stderr, path+test.want)):
			t.Errorf("%s: got %+v, want %q", name, got, test.want)
		}
	}
}

func TestAuditFileOthers(t *testing.T) {
	path := makeLog(t, 3)
	command{}.run("audit", "tail", "-n", "2", "--json", "--file", path).want(t, 0, `"seq":2`, `"seq":3`)
	if got := (command{}).run("audit", "tail", "-n", "2", "--json", "--file", path); strings.Contains(got.stdout, `"seq":1,`) {
		t.Errorf("-n 2 shows more: %q", got.stdout)
	}
	check(t, os.Remove(path+".anchor"))
	command{}.run("audit", "verify", "--file", path).want(t, 1, "anchor", "copy the anchor")
	data, err := os.ReadFile(path)
	check(t, err)
	check(t, os.WriteFile(path, data[:len(data)-5], 0o600))
	command{}.run("audit", "tail", "--file", path).want(t, 1, "no end")
	command{}.run("audit", "tail", "--file", "/nonexistent").want(t, 1, "no such file")
}

// Whatever a log holds, checking it ends with an answer, and a log that verifies
// is one unbroken chain.
func FuzzAuditLine(f *testing.F) {
	zeros := strings.Repeat("0", 64)
	seeds := []string{
		`{"seq":1,"kind":"start","prev":"` + zeros + `"}`, `{"seq":1,"prev":""}`, `{}`, `[]`, `null`, "", "\xff",
		`{"seq":1,"kind":"break","detail":{"what":"torn"},"prev":"` + zeros + `"}`,
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		c := chain{head: zeros}
		if err := c.next("log", line); err != nil {
			return
		}
		if want := fmt.Sprintf("%x", sha256.Sum256(line)); c.seq != 1 || c.head != want || !bytes.Contains(line, []byte("0")) {
			t.Errorf("%q was taken as record %d with head %s", line, c.seq, c.head)
		}
	})
}
