package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"holdfast/client"
	"holdfast/client/profile"
)

// lock locks a key.
func (r *rig) lock(t testing.TB, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	c, err := client.Dial(ctx, &client.Options{Socket: r.agent.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if err := c.Lock(ctx, key); err != nil {
		t.Fatal(err)
	}
}

// once asks for the namespaces. client-go obeys Retry-After by itself; here it does
// not ask again.
func once(t *testing.T, c *kubernetes.Clientset) error {
	return c.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces").MaxRetries(0).Do(t.Context()).Error()
}

// A controller whose key is locked is told so by each answer, and when to ask again.
// client-go does not run the plugin for these, and goes on when the key is unlocked.
func TestLockedController(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice, withPIN(t))
	r.unlock(t, "careful")
	config := r.inProcess(t, r.config(t, profile.ModeProxy))
	runs := countRuns(t, config.AuthInfos["test"].Exec)
	c := newClient(t, config)
	if err := once(t, c); err != nil {
		t.Fatal(err)
	}
	r.lock(t, "careful")
	eventually(t, "the lock", func() string {
		if err := once(t, c); err == nil {
			return "requests are still answered"
		}
		return ""
	})
	before := runs()
	for range 20 {
		err := once(t, c)
		if err != nil && strings.Contains(err.Error(), "were cut") {
			continue // it was on its way when the broker read the keys again
		}
		if !apierrors.IsServiceUnavailable(err) || !strings.Contains(err.Error(), "key careful is locked: ") || !strings.Contains(err.Error(), "holdfast unlock careful") {
			t.Fatalf("with a locked key: %v", err)
		}
		if seconds, told := apierrors.SuggestsClientDelay(err); !told || seconds < 1 {
			t.Fatalf("the answer asks for a delay of %d s", seconds)
		}
	}
	r.unlock(t, "careful")
	if err := once(t, c); err != nil {
		t.Errorf("after unlock: %v", err)
	}
	if got := runs(); got != before || got != 1 {
		t.Errorf("client-go ran the plugin %d times before and %d times after the lock, want once in all", before, got-before)
	}
}

// countRuns has an entry note each run of the plugin, and returns how many there were.
func countRuns(t *testing.T, e *clientcmdapi.ExecConfig) func() int {
	t.Helper()
	file := filepath.Join(t.TempDir(), "runs")
	e.Args = append([]string{"-c", `echo >>"$0"; exec "$@"`, file, e.Command}, e.Args...)
	e.Command = "/bin/sh"
	return func() int {
		noted, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return len(noted)
	}
}
