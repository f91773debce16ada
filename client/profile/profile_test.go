package profile

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"time"
)

// authority returns the certificate of a CA, PEM, and its private key.
func authority(t testing.TB) (certificate, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", secret)
}

func indented(text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n    ")
}

// baseline is a good file with every word; each case of TestParseRefuses spoils
// one thing.
func baseline(ca string) string {
	return `key: web
modes: [proxy, token, certificate]
cluster:
  server: https://api.prod.example.com:6443/cluster
  tls-server-name: kubernetes.default
  proxy-url: socks5://127.0.0.1:1080
  disable-compression: true
  certificate-authority-data: |
    ` + indented(ca) + `
proxy:
  port: 16443
  no-pool: true
  idle-timeout: 30s
  max-age: 10m
certificate:
  signer-name: example.com/people
  lifetime: 20m
token:
  namespace: tools
  service-account: deployer
  audiences: [one, two]
  lifetime: 15m
renewal:
  signer-name: kubernetes.io/kube-apiserver-client
  lifetime: 24h
  fraction: 0.5
  jitter: 0.1
  new-key: true
`
}

// complete is what the baseline says.
func complete(ca string) *Profile {
	return &Profile{
		Name: "prod", Key: "web", Modes: []string{"proxy", "token", "certificate"},
		Cluster: Cluster{
			Server: "https://api.prod.example.com:6443/cluster", CertificateAuthorityData: ca,
			TLSServerName: "kubernetes.default", ProxyURL: "socks5://127.0.0.1:1080", DisableCompression: true,
		},
		Proxy:       Proxy{Port: 16443, NoPool: true, IdleTimeout: 30 * time.Second, MaxAge: 10 * time.Minute},
		Certificate: Certificate{SignerName: "example.com/people", Lifetime: 20 * time.Minute},
		Token:       Token{Namespace: "tools", ServiceAccount: "deployer", Audiences: []string{"one", "two"}, Lifetime: 15 * time.Minute},
		Renewal: Renewal{
			SignerName: "kubernetes.io/kube-apiserver-client", Lifetime: 24 * time.Hour, Fraction: 0.5, Jitter: 0.1, NewKey: true,
		},
	}
}

func TestParseTakesTheBaseline(t *testing.T) {
	ca, _ := authority(t)
	got, err := Parse("prod", []byte(baseline(ca)))
	if err != nil {
		t.Fatal(err)
	}
	if want := complete(ca); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := got.ServerName(); got != "prod.holdfast.internal" {
		t.Errorf("got server name %s", got)
	}
}

func TestParseFillsInDefaults(t *testing.T) {
	ca, _ := authority(t)
	text := "key: web\ncluster:\n  server: https://10.0.0.1\n  certificate-authority-data: |\n    " + indented(ca) + "\n"
	got, err := Parse("p", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	want := &Profile{
		Name: "p", Key: "web", Modes: []string{ModeProxy},
		Cluster: Cluster{Server: "https://10.0.0.1", CertificateAuthorityData: ca},
		Proxy:   Proxy{IdleTimeout: 90 * time.Second, MaxAge: time.Hour},
		Token:   Token{Lifetime: 10 * time.Minute}, Renewal: Renewal{Fraction: 0.7},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	ca, key := authority(t)
	base := baseline(ca)
	server := "https://api.prod.example.com:6443/cluster"
	cases := []struct{ about, old, new, want string }{
		{"unknown word", "modes:", "mode:", `prod.yaml:2: a profile has no word "mode"; the words are certificate, cluster, key, modes, proxy, renewal, token`},
		{"other case", "key:", "Key:", `prod.yaml:1: a profile has no word "Key"`},
		{"word twice", "modes: [proxy, token, certificate]", "key: web", "prod.yaml:2: key is there already, on line 1"},
		{"section twice", "certificate:\n", "proxy:\n", "prod.yaml:"},
		{"unknown word of a section", "server:", "servers:", `prod.yaml:4: cluster has no word "servers"`},
		{"word of another section", "server:", "insecure-skip-tls-verify:", "prod.yaml:4: cluster has no word"},
		{"merge", "no-pool: true", "<<: {port: 1}", `prod.yaml:`},
		{"anchor", "key: web", "key: &a web", "prod.yaml:1: anchors such as &a are not accepted"},
		{"tag", "key: web", "key: !x web", "prod.yaml:1: tags such as !x are not accepted"},
		{"no key", "key: web\n", "", "prod.yaml:1: key: "},
		{"empty key", "key: web", `key: ""`, "prod.yaml:1: key: expected a string"},
		{"key name", "key: web", "key: Web", `prod.yaml:1: key: "Web" is not a key name`},
		{"modes empty", "[proxy, token, certificate]", "[]", "prod.yaml:2: modes: expected a list such as"},
		{"mode unknown", "[proxy, token", "[proxy, tokens", `prod.yaml:2: modes: there is no mode "tokens"; the modes are proxy, certificate, token`},
		{"mode twice", "[proxy, token", "[token, token", `prod.yaml:2: "token" is in the list already`},
		{"mode a number", "[proxy, token", "[1, token", "prod.yaml:2: modes: expected a string"},
		{"cluster is text", "cluster:\n", "cluster: x\nproxy:\n", "prod.yaml:3: cluster must be a mapping of"},
		{"http", server, "http://api", "prod.yaml:4: cluster.server: it does not start with https://"},
		{"no scheme", server, "api.prod:6443", "prod.yaml:4: cluster.server: it "},
		{"user in the server", server, "https://u:p@api", "prod.yaml:4: cluster.server: it holds a user name"},
		{"query in the server", server, "https://api?x=1", "prod.yaml:4: cluster.server: it holds a query"},
		{"no host", server, "https:///x", "prod.yaml:4: cluster.server: \"\" is neither"},
		{"odd host", server, "https://a..b", `prod.yaml:4: cluster.server: "a..b" is neither`},
		{"port too large", server, "https://a:65536", "prod.yaml:4: cluster.server: a port is from 1"},
		{"port left out", server, `"https://a:"`, "prod.yaml:4: cluster.server: the port is missing"},
		{"no server", "  server: " + server + "\n", "", "prod.yaml:3: cluster.server: it is missing"},
		{"TLS name", "kubernetes.default", "a b", "prod.yaml:5: cluster.tls-server-name: "},
		{"proxy scheme", "socks5:", "socks4:", "prod.yaml:6: cluster.proxy-url: it starts with none of"},
		{"proxy no host", "127.0.0.1:1080", "/x", "prod.yaml:6: cluster.proxy-url: "},
		{"boolean as text", "disable-compression: true", "disable-compression: yes", "prod.yaml:7: cluster.disable-compression: expected true or false"},
		{"CA is no PEM", "    " + indented(ca), "    nothing", "prod.yaml:8: cluster.certificate-authority-data: it holds no certificate"},
		{"CA missing", "  certificate-authority-data: |\n    " + indented(ca) + "\n", "", "prod.yaml:3: cluster.certificate-authority-data: it is missing"},
		{"CA with a private key", indented(ca), indented(ca + key), "prod.yaml:8: cluster.certificate-authority-data: it holds a PRIVATE KEY"},
		{"CA is broken", indented(ca), indented("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), "prod.yaml:8: cluster.certificate-authority-data: certificate 1: "},
		{"port 0", "port: 16443", "port: 0", "prod.yaml:"},
		{"port of a name", "port: 16443", "port: https", "prod.yaml:"},
		{"port in octal", "port: 16443", "port: 0o17", "prod.yaml:"},
		{"port out of range", "port: 16443", "port: 70000", "prod.yaml:"},
		{"port negative", "port: 16443", "port: -1", "prod.yaml:"},
		{"duration a number", "30s", "30", "prod.yaml:"},
		{"duration negative", "30s", "-30s", "prod.yaml:"},
		{"duration zero", "30s", "0s", "prod.yaml:"},
		{"duration in days", "24h", "1d", "prod.yaml:"},
		{"certificate too short", "20m", "9m59s", "prod.yaml:"},
		{"token too short", "15m", "599s", "prod.yaml:"},
		{"token fractions of a second", "15m", "15m0.5s", "prod.yaml:"},
		{"renewal too long", "24h", "999999h", "prod.yaml:"},
		{"signer", "example.com/people", "people", "prod.yaml:"},
		{"legacy signer", "example.com/people", "kubernetes.io/legacy-unknown", "prod.yaml:"},
		{"namespace missing", "  namespace: tools\n", "", "prod.yaml:"},
		{"service account missing", "  service-account: deployer\n", "", "prod.yaml:"},
		{"namespace", "tools", "Tools", "prod.yaml:"},
		{"audience twice", "[one, two]", "[one, one]", "prod.yaml:"},
		{"audience empty", "[one, two]", `[one, ""]`, "prod.yaml:"},
		{"fraction 0", "fraction: 0.5", "fraction: 0", "prod.yaml:"},
		{"fraction 1", "fraction: 0.5", "fraction: 1", "prod.yaml:"},
		{"fraction text", "fraction: 0.5", "fraction: half", "prod.yaml:"},
		{"jitter as large as the fraction", "jitter: 0.1", "jitter: 0.5", "prod.yaml:"},
		{"jitter negative", "jitter: 0.1", "jitter: -0.1", "prod.yaml:"},
		{"second document", "modes:", "---\nmodes:", "prod.yaml:"},
		{"list", base, "- key: web\n", "prod.yaml:1: a profile must be a mapping of"},
		{"empty", base, "", "prod.yaml:1: the file is empty"},
		{"null", base, "null\n", "prod.yaml:1: a profile must be a mapping of"},
		{"broken", "key: web", "key: [", "prod.yaml:"},
		{"too long", base, strings.Repeat("# long\n", MaxFile/7+1), "prod.yaml:1: longer than"},
	}
	for _, c := range cases {
		t.Run(c.about, func(t *testing.T) {
			if !strings.Contains(base, c.old) {
				t.Fatalf("the baseline has no %q", c.old)
			}
			got, err := Parse("prod", []byte(strings.Replace(base, c.old, c.new, 1)))
			if err == nil || !strings.HasPrefix(err.Error(), c.want) {
				t.Fatalf("got %+v, %v, want an error that starts %q", got, err, c.want)
			}
			misspelt := strings.Contains(err.Error(), "no word") || strings.Contains(err.Error(), "already") // and so another word is missing
			if lines := strings.Count(err.Error(), "\n"); lines > 0 && !misspelt {
				t.Errorf("one mistake gave %d faults: %v", lines+1, err)
			}
		})
	}
}

// A URL may hold a password.
func TestFaultsShowNoURL(t *testing.T) {
	ca, _ := authority(t)
	for _, url := range []string{"ftp://u:hunter2@h", "http://u:hunter2@h:0", "http://u:hunter2@[", "http://u:hunter2@h:x"} {
		for _, word := range []string{"server: https://api.prod.example.com:6443/cluster", "proxy-url: socks5://127.0.0.1:1080"} {
			name, _, _ := strings.Cut(word, ":")
			_, err := Parse("prod", []byte(strings.Replace(baseline(ca), word, name+": '"+url+"'", 1)))
			if err == nil || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("%s %s: got %v", name, url, err)
			}
		}
	}
}

func TestParseReportsEveryFault(t *testing.T) {
	ca, _ := authority(t)
	text := strings.NewReplacer("key: web", "key: WEB", "port: 16443", "prot: 1", "lifetime: 20m", "lifetime: 1m").Replace(baseline(ca))
	_, err := Parse("prod", []byte(text))
	if err == nil {
		t.Fatal("got no error")
	}
	if got := strings.Split(err.Error(), "\n"); len(got) != 3 {
		t.Errorf("got %d faults, want 3: %v", len(got), err)
	}
}

func TestNames(t *testing.T) {
	ca, _ := authority(t)
	longest := strings.Repeat("a", MaxName)
	for name, good := range map[string]bool{
		"a": true, "prod-1": true, longest: true, longest + "a": false, "": false, "-a": false, "a-": false, "A": false, "a.b": false, "a_b": false,
		"..": false, "a/b": false, "a\n": false,
	} {
		if _, err := Parse(name, []byte(baseline(ca))); (err == nil) != good {
			t.Errorf("%q: got %v, want good: %t", name, err, good)
		}
	}
}

func TestNode(t *testing.T) {
	for name, want := range map[string]bool{"system:node:a": true, "system:node:": false, "alice": false, "": false} {
		if got := Node(name); got != want {
			t.Errorf("%q: got %t, want %t", name, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	ca, key := authority(f)
	seeds := []string{
		baseline(ca), strings.Replace(baseline(ca), "socks5", "http", 1), indented(key), "", "key: web", "cluster: {server: https://a}",
		"key: &a [*a]", "<<: {key: web}", "%YAML 1.1\n---\nkey: a", "renewal: {fraction: .nan, jitter: .inf}", "proxy: {port: 0x1}",
	}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("f", data)
		if err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "f.yaml:") {
					t.Errorf("fault without file and line: %q", line)
				}
			}
			return
		}
		if err := p.Check(); err != nil {
			t.Fatalf("parsed, and then: %v", err)
		}
		text, err := marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("f", text)
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("got %+v, %v, want %+v", again, err, p)
		}
	})
}
