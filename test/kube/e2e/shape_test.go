package e2e

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	clientauthenticationv1beta1 "k8s.io/client-go/pkg/apis/clientauthentication/v1beta1"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	"holdfast/client/execcredential"
	"holdfast/client/kubeconfig"
	"holdfast/client/profile"
	"holdfast/internal/brokerwire"
)

// members returns the names that a struct has in JSON (or in YAML), with the
// kinds of their values.
func members(t *testing.T, v any, tag string) map[string]string {
	t.Helper()
	found := map[string]string{}
	of := reflect.TypeOf(v)
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get(tag), ",")
		if name == "-" {
			continue
		}
		kind := f.Type.Kind().String()
		switch {
		case f.Type.Kind() == reflect.Pointer:
			kind = f.Type.Elem().Kind().String()
		case kind == "slice":
			kind += " of " + f.Type.Elem().Kind().String()
		}
		found[name] = kind
	}
	return found
}

// TestKubeconfigTypes: our types of a cluster, a user and a context have exactly the
// members of Kubernetes' own, so that none is lost or missed.
func TestKubeconfigTypes(t *testing.T) {
	for _, pair := range []struct{ ours, theirs any }{
		{kubeconfig.Cluster{}, clientcmdv1.Cluster{}},
		{kubeconfig.AuthInfo{}, clientcmdv1.AuthInfo{}},
		{kubeconfig.Context{}, clientcmdv1.Context{}},
		{kubeconfig.ExecConfig{}, clientcmdv1.ExecConfig{}},
		{kubeconfig.ExecEnvVar{}, clientcmdv1.ExecEnvVar{}},
	} {
		if ours, theirs := members(t, pair.ours, "json"), members(t, pair.theirs, "json"); !maps.Equal(ours, theirs) {
			t.Errorf("%T has %v\n%T has %v", pair.ours, ours, pair.theirs, theirs)
		}
	}
}

// TestClusterTypes: the plugin reads every member of a cluster that a client sends,
// and sends each to the broker except the extension, which only the plugin uses.
func TestClusterTypes(t *testing.T) {
	ours := members(t, execcredential.Cluster{}, "json")
	for _, theirs := range []any{clientauthenticationv1.Cluster{}, clientauthenticationv1beta1.Cluster{}} {
		if want := members(t, theirs, "json"); !slices.Equal(names(ours), names(want)) {
			t.Errorf("execcredential.Cluster has %v\n%T has %v", names(ours), theirs, names(want))
		}
	}
	toBroker := members(t, brokerwire.Cluster{}, "json")
	if len(toBroker) != len(ours)-1 {
		t.Errorf("the broker is told %v of %v", names(toBroker), names(ours))
	}
	// A profile has what changes the way to the cluster, and refuses to go without
	// verification.
	inProfile := members(t, profile.Cluster{}, "yaml")
	if want := len(ours) - 2; len(inProfile) != want {
		t.Errorf("a profile's cluster has %v, want %d of %v", names(inProfile), want, names(ours))
	}
}

func names(of map[string]string) []string { return slices.Sorted(maps.Keys(of)) }
