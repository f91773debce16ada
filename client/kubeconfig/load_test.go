package kubeconfig

import (
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

const whole = `apiVersion: v1
kind: Config
clusters:
- name: c
  cluster:
    server: https://10.0.0.1:6443
    tls-server-name: api
    insecure-skip-tls-verify: false
    certificate-authority: pki/ca.pem
    certificate-authority-data: QUJD
    proxy-url: socks5://p
    disable-compression: yes
    extensions:
    - name: client.authentication.k8s.io/exec
      extension: {audience: x}
users:
- name: u
  user:
    client-certificate: pki/c.pem
    client-certificate-data: |
      QU
      JD
    client-key: /k.pem
    client-key-data: REVG
    token: t
    tokenFile: tok
    as: other
    as-uid: "7"
    as-groups: [a, b]
    as-user-extra: {k: [v]}
    username: n
    password: p
    auth-provider: {name: oidc, config: {id: x}}
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: bin/plugin
      args: [a]
      env: [{name: N, value: V}]
      installHint: get it
      provideClusterInfo: true
      interactiveMode: Never
- name: bare
  user: {exec: {command: plugin}}
- name: nothing
contexts:
- name: x
  context: {cluster: c, user: u, namespace: ns}
current-context: x
`

func write(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadReadsEverything(t *testing.T) {
	dir := t.TempDir()
	path := write(t, dir+"/config", whole)
	got, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	want := &Config{
		Files: []string{path}, CurrentContext: "x", CurrentOrigin: path,
		Clusters: map[string]*Cluster{"c": {
			Server: "https://10.0.0.1:6443", TLSServerName: "api", CertificateAuthority: dir + "/pki/ca.pem", CertificateAuthorityData: Data("ABC"),
			ProxyURL: "socks5://p", DisableCompression: true, Origin: path,
			Extensions: []NamedExtension{{"client.authentication.k8s.io/exec", map[string]any{"audience": "x"}}},
		}},
		Users: map[string]*AuthInfo{
			"u": {
				ClientCertificate: dir + "/pki/c.pem", ClientCertificateData: Data("ABC"), ClientKey: "/k.pem", ClientKeyData: Data("DEF"),
				Token: "t", TokenFile: dir + "/tok", Impersonate: "other", ImpersonateUID: "7", ImpersonateGroups: []string{"a", "b"},
				ImpersonateUserExtra: map[string][]string{"k": {"v"}}, Username: "n", Password: "p",
				AuthProvider: &AuthProviderConfig{"oidc", map[string]string{"id": "x"}}, Origin: path,
				Exec: &ExecConfig{
					APIVersion: "client.authentication.k8s.io/v1", Command: dir + "/bin/plugin", Args: []string{"a"}, Env: []ExecEnvVar{{"N", "V"}},
					InstallHint: "get it", ProvideClusterInfo: true, InteractiveMode: "Never",
				},
			},
			"bare":    {Exec: &ExecConfig{Command: "plugin"}, Origin: path},
			"nothing": {Origin: path},
		},
		Contexts: map[string]*Context{"x": {Cluster: "c", AuthInfo: "u", Namespace: "ns", Origin: path}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	static := []string{"token", "tokenFile", "username", "password", "client-certificate", "client-certificate-data"}
	if got := got.Users["u"].Static(); !slices.Equal(got, static) {
		t.Errorf("got %v, want %v", got, static)
	}
	if got := got.Users["bare"].Static(); len(got) > 0 {
		t.Errorf("got %v, want none", got)
	}
}

// The first file to say something wins.
func TestLoadMerges(t *testing.T) {
	dir := t.TempDir()
	one := write(t, dir+"/one", "clusters:\n- {name: c, cluster: {server: https://one}}\nusers: null\n")
	two := write(t, dir+"/two", `{"clusters":[{"name":"c","cluster":{"server":"https://two","proxy-url":"http://p"}},{"name":"d"}],"current-context":"x"}`)
	t.Setenv("KUBECONFIG", dir+"/missing::"+one+":"+two)
	got, err := Load("")
	if err != nil {
		t.Fatal(err)
	}
	if c := got.Clusters["c"]; c.Server != "https://one" || c.ProxyURL != "" || c.Origin != one || got.Clusters["d"].Origin != two {
		t.Errorf("got %+v", got.Clusters)
	}
	if got.CurrentContext != "x" || got.CurrentOrigin != two || !slices.Equal(got.Files, []string{one, two}) {
		t.Errorf("got %+v", got)
	}
	t.Setenv("KUBECONFIG", dir+"/missing")
	if _, err := Load(""); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
	if _, err := Load(dir + "/missing"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("explicit: got %v, want ErrNotExist", err)
	}
}

func TestPaths(t *testing.T) {
	for _, c := range []struct {
		explicit, list, home string
		want                 []string
	}{
		{"x", "a:b", "/h", []string{"x"}},
		{"", "a::b", "/h", []string{"a", "b"}},
		{"", "", "/h", []string{"/h/.kube/config"}},
		{"", "", "", nil},
	} {
		got := Paths(c.explicit, func(name string) string { return map[string]string{"KUBECONFIG": c.list, "HOME": c.home}[name] })
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, c := range []struct{ about, old, new, want string }{
		{"word twice", "current-context: x\n", "kind: Config\n", "f:"},
		{"cluster twice", "- name: bare\n", "- name: u\n", `f: there are two users named "u"`},
		{"no base64", "REVG", "hunter2!", "f:24: it is not base64"},
		{"no base64, in a list", "QUJD", "[1]", "f:10: "},
		{"list for a text", "token: t", "token: [hunter2]", "f:25: "},
		{"text for a list", "as-groups: [a, b]", "as-groups: hunter2", "f:"},
		{"broken", "token: t", "token: [hunter2", "f:"},
		{"bomb", "preferences", "", ""},
	} {
		text := strings.Replace(whole, c.old, c.new, 1)
		if c.about == "bomb" {
			text = "a: &a [x, x, x, x, x, x, x, x, x]\n"
			for i := 'b'; i < 'n'; i++ {
				text += string(i) + ": &" + string(i) + " [" + strings.Repeat("*"+string(i-1)+", ", 8) + "]\n"
			}
			text += "users: *m\n"
		}
		got, err := Parse("f", []byte(text))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %+v, %v, want an error that starts %q", c.about, got, err, c.want)
		}
	}
	if _, err := Parse("f", make([]byte, MaxFile+1)); err == nil {
		t.Error("a file that is too long was read")
	}
}

func TestAuthority(t *testing.T) {
	path := write(t, t.TempDir()+"/ca.pem", "file")
	for _, c := range []struct {
		cluster Cluster
		want    string
	}{
		{Cluster{CertificateAuthority: path}, "file"},
		{Cluster{CertificateAuthority: path, CertificateAuthorityData: Data("data")}, "data"},
		{Cluster{}, ""},
	} {
		if got, err := c.cluster.Authority(); err != nil || string(got) != c.want {
			t.Errorf("%+v: got %q, %v", c.cluster, got, err)
		}
	}
	if _, err := (&Cluster{CertificateAuthority: path + "x"}).Authority(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v, want ErrNotExist", err)
	}
}

func FuzzParse(f *testing.F) {
	seeds := []string{whole, `{"users":[{"name":"u","user":{"token":"t"}}]}`, "", "users: null", "a: &a [*a]", "users: &u\n- name: x\n<<: *u"}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("f", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Errorf("a fault without the file: %v", err)
			}
			return
		}
		config := &Config{Clusters: map[string]*Cluster{}, Users: map[string]*AuthInfo{}, Contexts: map[string]*Context{}}
		if err := config.add("/d/f", file); err != nil {
			t.Fatal(err)
		}
		for name, u := range config.Users {
			if u.Origin != "/d/f" || u.TokenFile != "" && u.TokenFile[0] != '/' {
				t.Errorf("%q: %+v", name, u)
			}
		}
	})
}
