package main

import (
	"encoding/json"
	"strings"
	"testing"

	"holdfast/client/clienttest"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
	"holdfast/internal/fault"
)

func TestStatusOfTheBroker(t *testing.T) {
	agent := clienttest.Start(t)
	c := command{socket: agent.Socket}
	t.Setenv("HOLDFAST_BROKER_SOCKET", "/no/such.sock")
	t.Setenv("XDG_CONFIG_HOME", t.TempDir())
	if got := c.run("status"); strings.Contains(got.stdout, "broker") {
		t.Errorf("without a broker: %s", got.stdout)
	}
	check(t, profile.Write(profile.Directory(false), &profile.Profile{
		Name: "prod", Key: "alice", Cluster: profile.Cluster{Server: "https://a", CertificateAuthorityData: string(clienttest.NewCA(t).PEM)},
	}))
	c.run("status").want(t, 0, "no broker listens at /no/such.sock", "hint: start one")
	broker := startBroker(t)
	broker.Version, broker.Policy, broker.AgentSocket = "v9", "/etc/policy.yaml", "/run/a.sock"
	broker.Endpoint.Key = "/state/loopback.key"
	broker.Notices = []brokerwire.Notice{{Message: "the key is in a file", Hint: "seal it"}}
	c.run("status").want(t, 0, "agent", "v9, user mode", "/etc/policy.yaml", "/run/a.sock", "127.0.0.1:16500, key /state/loopback.key",
		"the key is in a file", "hint: seal it")
	var status fullStatus
	check(t, json.Unmarshal([]byte(c.run("status", "--json").stdout), &status))
	if status.Version != "test" || status.Broker == nil || status.Broker.Version != "v9" {
		t.Errorf("--json: got %+v", status)
	}
	broker.fault = &fault.Error{Kind: fault.Denied, Message: "you may not ask", Hint: "be root"}
	c.run("status").want(t, 0, "agent", "you may not ask", "hint: be root")
}

func TestProfileRows(t *testing.T) {
	rows := brokerRows(brokerwire.GetStatusReply{Profiles: []brokerwire.Profile{
		{
			Name: "prod", Server: "https://api:6443", Key: "alice", Modes: []string{"proxy", "token"},
			Connections: 1, Tickets: 2, Minted: 3, Signatures: 1, Fault: "the port is taken", Hint: "free it",
		},
		{Name: "bad", Modes: []string{}, Fault: "bad.yaml:3: no", Hint: "mend it"},
	}}, nil)
	var text []string
	for _, row := range rows {
		text = append(text, strings.Join(row, " "))
	}
	got := strings.Join(text, "\n")
	for _, want := range []string{
		"proxy nowhere yet", "profile prod: https://api:6443 with key alice, modes proxy, token",
		"1 connection, 2 tickets, 3 minted, 1 signature", " the port is taken\n hint: free it", "profile bad: bad.yaml:3: no\n hint: mend it",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("nothing says %q:\n%s", want, got)
		}
	}
}

func TestDoctorOnTheBroker(t *testing.T) {
	agent, _ := withAlice(t)
	m := healthy(t)
	t.Setenv("HOLDFAST_BROKER_SOCKET", "/no/such.sock")
	if found, _ := examineAt(agent.Socket, m); found.has(stateOK, "broker", "") || found.has(stateBad, "broker", "") {
		t.Errorf("without a broker: %+v", found)
	}
	broker := startBroker(t)
	broker.Notices = []brokerwire.Notice{{Message: "the key is in a file", Hint: "seal it"}}
	a := &app{socket: agent.Socket, machine: m, timeouts: usualTimeouts()}
	found, code := a.examine(t.Context())
	if code != exitDone || !found.has(stateOK, "broker", "its proxy is at 127.0.0.1:16500") || !found.has(stateNote, "broker", "in a file") {
		t.Errorf("got code %d and %+v", code, found)
	}
	broker.fault = &fault.Error{Kind: fault.Denied, Message: "you may not ask", Hint: "be root"}
	found, code = a.examine(t.Context())
	if code != exitFailed || !found.has(stateBad, "broker", "you may not ask") {
		t.Errorf("got code %d and %+v", code, found)
	}
	wantHints(t, found)
	found = nil
	found.profiles([]brokerwire.Profile{{Name: "prod"}, {Name: "bad", Fault: "bad.yaml:3: no", Hint: "mend it"}})
	if len(found) != 1 || !found.has(stateBad, "profile bad", "bad.yaml:3") {
		t.Errorf("got %+v", found)
	}
	wantHints(t, found)
}
