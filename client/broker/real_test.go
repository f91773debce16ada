package broker_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"holdfast/test/daemon"
)

func TestMain(m *testing.M) {
	code := m.Run()
	daemon.Remove()
	if err := goleak.Find(); code == 0 && err != nil {
		println(err.Error())
		code = 1
	}
	os.Exit(code)
}

func TestStarts(t *testing.T) {
	agent := daemon.Start(t, daemon.Options{})
	b := daemon.StartBroker(t, daemon.BrokerOptions{Agent: agent})
	s := b.GetStatus()
	t.Logf("%+v", s)
	if code := b.Stop(); code != 0 {
		t.Errorf("got status %d\n%s", code, b.Log())
	}
	t.Log(b.Log())
}
