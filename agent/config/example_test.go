package config_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"holdfast/agent/config"
)

func Example() {
	flags := flag.NewFlagSet("holdfast-agent", flag.ContinueOnError)
	c := config.New()
	c.Flags(flags)
	err := flags.Parse([]string{"--state", "/var/lib/test", "--socket", "/run/test/agent.sock", "--device", "none"})
	if err != nil {
		fmt.Println(err)
		return
	}
	environment := map[string]string{"HOME": "/nonexistent"}
	err = c.Resolve(flags, func(name string) string { return environment[name] })
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := c.Explain(os.Stdout); err != nil {
		fmt.Println(err)
	}
	// Output:
	// system                      false                    (default)
	// state                       /var/lib/test            (--state)
	// socket                      /run/test/agent.sock     (--socket)
	// admin-socket                -                        (default)
	// policy                      -                        (default)
	// device                      none                     (--device)
	// piv                         off                      (default)
	// piv-program                 -                        (default)
	// piv-roots                   -                        (default)
	// prompt                      auto                     (default)
	// pinentry                    -                        (default)
	// remember-pins               off                      (default)
	// audit                       /var/lib/test/audit.log  (default)
	// owner-auth-file             -                        (default)
	// limits.queue-per-peer       256                      (default)
	// limits.queue-total          1024                     (default)
	// limits.connections-per-uid  320                      (default)
	// limits.unlock-seconds       900                      (default)
	// limits.unlock-max-seconds   3600                     (default)
}

// Scripts depend on the flags (holdfast-agent(8)).
func TestFlags(t *testing.T) {
	flags := flag.NewFlagSet("holdfast-agent", flag.ContinueOnError)
	config.New().Flags(flags)
	var got []string
	flags.VisitAll(func(f *flag.Flag) {
		got = append(got, f.Name)
		if f.Usage == "" {
			t.Errorf("--%s has no help", f.Name)
		}
	})
	want := "admin-socket audit config device piv policy socket state system"
	if g := strings.Join(got, " "); g != want {
		t.Errorf("got %s, want %s", g, want)
	}
}

func TestUnsetFlagsChangeNothing(t *testing.T) {
	flags := flag.NewFlagSet("holdfast-agent", flag.ContinueOnError)
	c := config.New()
	c.Flags(flags)
	if err := flags.Parse(nil); err != nil {
		t.Fatal(err)
	}
	environment := map[string]string{"HOME": "/nonexistent", "XDG_RUNTIME_DIR": "/run/user/7", "HOLDFAST_SOCKET": ""}
	if err := c.Resolve(flags, func(name string) string { return environment[name] }); err != nil {
		t.Fatal(err)
	}
	if c.System || c.Socket != "/run/user/7/holdfast/agent.sock" {
		t.Errorf("got %+v", c)
	}
}
