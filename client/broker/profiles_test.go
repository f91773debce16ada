package broker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/client/clienttest"
	"holdfast/client/profile"
)

// A bench is a directory of profiles and the names of those that changed.
type bench struct {
	*profileCache
	t       *testing.T
	changed []string
	ca      string
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, ca: string(clienttest.NewCA(t).PEM)}
	b.profileCache = newProfileCache(t.TempDir(), func(name string) { b.changed = append(b.changed, name) })
	return b
}

func (b *bench) write(name, server string) {
	b.t.Helper()
	p := &profile.Profile{Name: name, Key: "alice", Cluster: profile.Cluster{Server: server, CertificateAuthorityData: b.ca}}
	if err := profile.Write(b.dir, p); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) server(name string) string {
	if p, ok := b.get(name); ok {
		return p.Cluster.Server
	}
	return ""
}

func TestProfileCacheSeesEveryChange(t *testing.T) {
	b := newBench(t)
	if b.server("prod") != "" {
		t.Error("an empty directory has a profile")
	}
	b.write("prod", "https://one:6443")
	b.write("dev", "https://dev:6443")
	if got := b.server("prod"); got != "https://one:6443" || len(b.changed) != 0 {
		t.Errorf("added: %q, changed %q", got, b.changed)
	}
	b.write("prod", "https://two:6443")
	if got := b.server("prod"); got != "https://two:6443" || !slices.Equal(b.changed, []string{"prod"}) {
		t.Errorf("replaced: %q, changed %q", got, b.changed)
	}
	os.Remove(filepath.Join(b.dir, "prod.yaml"))
	if got := b.server("prod"); got != "" || !slices.Equal(b.changed, []string{"prod", "prod"}) {
		t.Errorf("removed: %q, changed %q", got, b.changed)
	}
	if got := b.server("dev"); got != "https://dev:6443" {
		t.Errorf("the other: %q", got)
	}
}

// The same size, in place, and at once: only the time tells, and two changes may
// have the same.
func TestProfileCacheSeesAnEditInPlace(t *testing.T) {
	b := newBench(t)
	b.write("prod", "https://one:6443")
	path := filepath.Join(b.dir, "prod.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		want := "https://on" + string(rune('f'+i)) + ":6443"
		edited := []byte(strings.Replace(string(text), "https://one:6443", want, 1))
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		b.get("prod") // read just before
		f.Write(edited)
		f.Close()
		for deadline := time.Now().Add(30 * time.Second); b.server("prod") != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d: got %s, want %s", i, b.server("prod"), want)
			}
		}
	}
}

// Two changes within a tick of the file system's clock look the same: what had
// just changed when it was read is read once more.
func TestProfileCacheReadsTwiceWhatHadJustChanged(t *testing.T) {
	b := newBench(t)
	b.write("prod", "https://one:6443")
	b.get("prod")
	b.write("prod", "https://two:6443")
	b.mu.Lock()
	b.stamps, b.read = b.stampAll(), time.Now() // as if the second had been there at the first reading
	b.mu.Unlock()
	for deadline := time.Now().Add(30 * time.Second); b.server("prod") != "https://two:6443"; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("got %s", b.server("prod"))
		}
	}
}

func TestProfileCacheKeepsThePreviousProfile(t *testing.T) {
	b := newBench(t)
	b.write("prod", "https://one:6443")
	b.get("prod")
	path := filepath.Join(b.dir, "prod.yaml")
	if err := os.WriteFile(path, []byte("key: [\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := b.server("prod"); got != "https://one:6443" || b.fault("prod") == nil || len(b.changed) != 0 {
		t.Errorf("a bad file: %q, fault %v, changed %q", got, b.fault("prod"), b.changed)
	}
	if err := os.Chmod(b.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	profiles, _, broken := b.list()
	if broken == nil || len(profiles) != 1 || len(b.changed) != 0 {
		t.Errorf("an unsafe directory: %v, %d profiles, changed %q", broken, len(profiles), b.changed)
	}
	if err := os.Chmod(b.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	b.write("prod", "https://two:6443")
	if got := b.server("prod"); got != "https://two:6443" || b.fault("prod") != nil {
		t.Errorf("mended: %q, fault %v", got, b.fault("prod"))
	}
	// A file that was bad from the start is no profile.
	if err := os.WriteFile(filepath.Join(b.dir, "bad.yaml"), []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, ok := b.get("bad"); ok || b.fault("bad") == nil {
		t.Errorf("bad from the start: %v, %v", ok, b.fault("bad"))
	}
}
