package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	"holdfast/client/profile"
	"holdfast/test/kube"
)

// An attacker's kubeconfig: exit 4 and nothing on standard output
// unless the cluster is the profile's in every respect.
func TestHostileCluster(t *testing.T) {
	r := newRig(t, sharedPlane(t), alice, withNode(t))
	stranger, err := kube.NewAuthority(filepath.Join(t.TempDir(), "pki"), "stranger")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(*infoCluster) *infoCluster{
		"no cluster":        func(*infoCluster) *infoCluster { return nil },
		"another server":    func(c *infoCluster) *infoCluster { c.Server = "https://evil.example"; return c },
		"another port":      func(c *infoCluster) *infoCluster { c.Server = "https://127.0.0.1:1"; return c },
		"plain http":        func(c *infoCluster) *infoCluster { c.Server = strings.Replace(c.Server, "https", "http", 1); return c },
		"no server":         func(c *infoCluster) *infoCluster { c.Server = ""; return c },
		"another name":      func(c *infoCluster) *infoCluster { c.TLSServerName = "evil.example"; return c },
		"another authority": func(c *infoCluster) *infoCluster { c.CertificateAuthorityData = stranger.PEM; return c },
		"an authority more": func(c *infoCluster) *infoCluster {
			c.CertificateAuthorityData = append(append([]byte(nil), c.CertificateAuthorityData...), stranger.PEM...)
			return c
		},
		"no authority": func(c *infoCluster) *infoCluster { c.CertificateAuthorityData = nil; return c },
		"an authority in pieces": func(c *infoCluster) *infoCluster {
			c.CertificateAuthorityData = c.CertificateAuthorityData[:100]
			return c
		},
		"no verification":         func(c *infoCluster) *infoCluster { c.InsecureSkipTLSVerify = true; return c },
		"a proxy on the way":      func(c *infoCluster) *infoCluster { c.ProxyURL = "http://evil.example:3128"; return c },
		"a user in the server":    func(c *infoCluster) *infoCluster { c.Server = strings.Replace(c.Server, "//", "//evil@", 1); return c },
		"a path after the server": func(c *infoCluster) *infoCluster { c.Server += "/../evil"; return c },
	}
	for mode, name := range map[string]string{profile.ModeToken: "prod", profile.ModeCertificate: "node"} {
		for what, change := range cases {
			if o := run(r.plugin(t, name, mode, change(r.cluster()))); o.code != 4 || o.stdout != "" || !strings.Contains(o.stderr, "hint: ") {
				t.Errorf("%s, %s: %+v", mode, what, o)
			}
		}
		r.credential(t, name, mode) // the good baseline
	}
	t.Run("through kubectl", func(t *testing.T) {
		config := r.config(t, profile.ModeToken)
		config.Clusters["test"].Server = "https://evil.invalid"
		o := run(r.kubectl(r.write(t, config), "auth", "whoami"))
		if o.code == 0 || o.stdout != "" || !strings.Contains(o.stderr, "executable holdfast-exec-plugin failed with exit code 4") {
			t.Errorf("kubectl: %+v", o)
		}
	})
	t.Run("a mode that the profile does not allow, a profile that is not there", func(t *testing.T) {
		for _, o := range []outcome{
			run(r.plugin(t, "none", profile.ModeToken, r.cluster())),
			run(r.plugin(t, "none", profile.ModeProxy, nil)),
		} {
			if o.code != 4 || o.stdout != "" {
				t.Errorf("%+v", o)
			}
		}
	})
}
