package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"holdfast/client"
	"holdfast/client/profile"
	"holdfast/internal/agentwire"
	"holdfast/test/daemon"
	"holdfast/test/desktop"
	"holdfast/test/kube"
	"holdfast/test/pace"
)

const pin = "correct horse"

// withPIN gives the rig a key that wants a PIN, and is locked, and its profile,
// careful, which is the rig's from then on.
func withPIN(t testing.TB) setup {
	return func(r *rig, o *daemon.BrokerOptions) {
		r.enrolWith(t, alice, agentwire.CreateKeyParameters{Name: "careful", PIN: []byte(pin)}, pin)
		r.profile = r.newProfile("careful")
		o.Profiles = append(o.Profiles, r.profile)
	}
}

// enrolWith makes a key as p says, and gives it a certificate. One with a PIN is
// locked afterwards.
func (r *rig) enrolWith(t testing.TB, who kube.User, p agentwire.CreateKeyParameters, pin string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := client.Dial(ctx, &client.Options{Socket: r.agent.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	p.Purpose = "tls-client"
	k, err := c.CreateKey(ctx, p)
	if err != nil {
		t.Fatalf("create the key %s: %v", p.Name, err)
	}
	if k.PIN {
		if _, err := c.Unlock(ctx, agentwire.UnlockKeyParameters{Name: p.Name, PIN: []byte(pin)}); err != nil {
			t.Fatalf("unlock the key %s: %v", p.Name, err)
		}
	}
	r.install(t, p.Name, who, time.Time{})
	if err := c.Lock(ctx, p.Name); err != nil {
		t.Fatal(err)
	}
}

// unlock gives the PIN of a key in advance.
func (r *rig) unlock(t testing.TB, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := client.Dial(ctx, &client.Options{Socket: r.agent.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := c.Unlock(ctx, agentwire.UnlockKeyParameters{Name: key, PIN: []byte(pin)}); err != nil {
		t.Fatal(err)
	}
}

// connections is how many connections to the cluster a profile has.
func (r *rig) connections(profile string) int {
	for _, p := range r.broker.GetStatus().Profiles {
		if p.Name == profile {
			return p.Connections
		}
	}
	return 0
}

// TestPINOnTheTerminal: a user pipes a manifest into kubectl, whose key needs a
// PIN. They are asked on their terminal, and the manifest arrives as it was.
func TestPINOnTheTerminal(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice, withPIN(t))
	manifest, want := bigManifest("typed-pin")
	file := filepath.Join(r.dir, "manifest")
	if err := os.WriteFile(file, []byte(manifest), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := r.kubectl(r.kubeconfig(t, profile.ModeProxy), "apply", "-f", "-")
	line := fmt.Sprintf("cat %s | %s; echo ended with $?; exec cat", file, strings.Join(cmd.Args, " "))
	terminal := desktop.OpenTerminal(t, append(cmd.Env, "TERM=screen"), line)
	prompt := terminal.AwaitPrompt()
	for _, word := range []string{"careful", "kubectl"} {
		if !strings.Contains(prompt, word) {
			t.Errorf("the prompt does not say %q:\n%s", word, prompt)
		}
	}
	terminal.Type(pin)
	if screen := terminal.Await("ended with"); !strings.Contains(screen, "configmap/typed-pin created") || !strings.Contains(screen, "ended with 0") {
		t.Errorf("kubectl apply:\n%s", screen)
	} else if strings.Contains(screen, pin) {
		t.Errorf("the PIN is on the screen:\n%s", screen)
	}
	got, err := r.plane.Administer("get", "configmap", "typed-pin", "-n", "kube-public", "-o", "jsonpath={.data.text}")
	if err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("the manifest arrived with SHA-256 %x, want %x", sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want)))
	}
	// The key is open now: the next command shows no prompt.
	if o := run(r.kubectl(r.kubeconfig(t, profile.ModeProxy), "auth", "whoami")); o.code != 0 {
		t.Errorf("the next command: exit %d\n%s", o.code, o.stderr)
	}
}

// bigManifest is a config map, where no other test looks, with text of every kind that pipes are bad at, and
// that text.
func bigManifest(name string) (manifest, text string) {
	var b strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&b, "%04d \t end of line  ", i)
	}
	text = b.String()
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: %s\n  namespace: kube-public\ndata:\n  text: %q\n", name, text), text
}

// TestPINWithoutAPerson: what has neither a terminal nor a desktop is told at
// once, and with the exit code for it.
func TestPINWithoutAPerson(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice, withPIN(t))
	for _, mode := range []string{profile.ModeProxy, profile.ModeToken} {
		began := time.Now()
		o := run(r.kubectl(r.kubeconfig(t, mode), "auth", "whoami"))
		if took := time.Since(began); pace.Over(t, took, 10*time.Second) {
			t.Errorf("mode %s: told after %v", mode, took)
		}
		if o.code == 0 || !strings.Contains(o.stderr, "exit code 5") || !strings.Contains(o.stderr, "holdfast unlock careful") {
			t.Errorf("mode %s: exit %d\n%s", mode, o.code, o.stderr)
		}
	}
}
