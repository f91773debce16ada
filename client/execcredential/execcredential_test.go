package execcredential

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
)

const real = `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1","spec":{"cluster":{"server":"https://127.0.0.1:16443","tls-server-name":"api","certificate-authority-data":"QQ==","proxy-url":"socks5://p","disable-compression":true,"config":{"profile":"prod"}},"interactive":false}}`

func TestParse(t *testing.T) {
	r, err := Parse(real)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Cluster
	if r.APIVersion != V1 || r.Interactive || r.Unauthorized || c == nil {
		t.Fatalf("got %+v", r)
	}
	if c.Server != "https://127.0.0.1:16443" || c.TLSServerName != "api" || string(c.CertificateAuthorityData) != "A" ||
		c.ProxyURL != "socks5://p" || !c.DisableCompression || c.InsecureSkipTLSVerify || c.Profile() != "prod" {
		t.Errorf("got %+v", c)
	}
}

func TestVersions(t *testing.T) {
	for _, version := range []string{V1, V1Beta1, V1Alpha1} {
		r, err := Parse(strings.Replace(real, V1, version, 1))
		if err != nil {
			t.Errorf("%s: %v", version, err)
			continue
		}
		out, err := r.Answer(Credential{Token: "t", Expires: time.Unix(2e9, 5)}, time.Unix(1e9, 0))
		if err != nil {
			t.Fatal(err)
		}
		want := `{"kind":"ExecCredential","apiVersion":"` + version + `","spec":{},"status":{"expirationTimestamp":"2033-05-18T03:33:20Z","token":"t"}}` + "\n"
		if string(out) != want {
			t.Errorf("got %s, want %s", out, want)
		}
	}
}

// Each case is one change of what a real client says.
func TestParseRefuses(t *testing.T) {
	cases := map[string]struct{ info, want string }{
		"empty":             {"", "is empty"},
		"a mebibyte":        {strings.Repeat("x", 1<<20), "longer than"},
		"no JSON":           {"secret words", "is not the JSON"},
		"two objects":       {real + real, "is not the JSON"},
		"another kind":      {strings.Replace(real, "ExecCredential", "Pod", 1), "does not hold an ExecCredential"},
		"no version":        {strings.Replace(real, V1, "", 1), "asks for apiVersion"},
		"a later version":   {strings.Replace(real, V1, V1+"beta7", 1), "v1beta7"},
		"the internal one":  {strings.Replace(real, V1, "client.authentication.k8s.io/__internal", 1), "asks for apiVersion"},
		"a number as CA":    {strings.Replace(real, `"QQ=="`, `7`, 1), "is not the JSON"},
		"a list as cluster": {strings.Replace(real, `"cluster":{`, `"cluster":[],"c":{`, 1), "is not the JSON"},
	}
	for name, c := range cases {
		_, err := Parse(c.info)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.ContainsAny(err.Error(), "\n") || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: got %v, want an error that says %q", name, err, c.want)
		}
	}
}

func TestUnauthorized(t *testing.T) {
	const v1alpha1 = `{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1alpha1","spec":{"response":{"header":{"Www-Authenticate":["Bearer"]},"code":%s},"interactive":true}}`
	for code, want := range map[string]bool{"401": true, "403": false, "0": false} {
		r, err := Parse(strings.Replace(v1alpha1, "%s", code, 1))
		if err != nil || r.Unauthorized != want || !r.Interactive || r.Cluster != nil {
			t.Errorf("code %s: got %+v, %v", code, r, err)
		}
	}
}

func TestProfile(t *testing.T) {
	cases := map[string]string{`{"profile":"a"}`: "a", `{}`: "", `[1]`: "", `"x"`: "", `{"profile":7}`: "", ``: "", `{"audience":"b"}`: ""}
	for config, want := range cases {
		if got := (&Cluster{Config: json.RawMessage(config)}).Profile(); got != want {
			t.Errorf("%s: got %q, want %q", config, got, want)
		}
	}
	if got := (*Cluster)(nil).Profile(); got != "" {
		t.Errorf("no cluster: got %q", got)
	}
}

func TestAnswerRefuses(t *testing.T) {
	now := time.Unix(1e9, 0)
	good := Credential{Token: "t", Certificate: "c", Key: "k", Expires: now.Add(time.Second)}
	if _, err := (Request{APIVersion: V1}).Answer(good, now); err != nil {
		t.Fatal(err)
	}
	cases := map[string]func(*Credential){
		"nothing":             func(c *Credential) { c.Token, c.Certificate, c.Key = "", "", "" },
		"no key":              func(c *Credential) { c.Key = "" },
		"no certificate":      func(c *Credential) { c.Certificate = "" },
		"no end":              func(c *Credential) { c.Expires = time.Time{} },
		"over":                func(c *Credential) { c.Expires = now },
		"newline in a token":  func(c *Credential) { c.Token = "a\nb" },
		"a token with a word": func(c *Credential) { c.Token = "a b" },
		"not ASCII":           func(c *Credential) { c.Token = "ä" },
	}
	for name, change := range cases {
		c := good
		change(&c)
		if out, err := (Request{APIVersion: V1}).Answer(c, now); err == nil || out != nil {
			t.Errorf("%s: got %q, %v, want an error alone", name, out, err)
		}
	}
}

func TestAssumed(t *testing.T) {
	for info, want := range map[string]bool{real: false, `{"apiVersion":"` + V1Beta1 + `"}`: true, `{"kind":"ExecCredential","apiVersion":"` + V1Beta1 + `"}`: true} {
		if r, err := Parse(info); err != nil || r.Assumed != want {
			t.Errorf("%s: got %+v, %v, want Assumed %v", info, r, err, want)
		}
	}
	for name, want := range map[string]string{"v1": V1, "v1beta1": V1Beta1, V1Alpha1: V1Alpha1, "v2": "", "": "", "client.authentication.k8s.io/": ""} {
		if got, known := Version(name); got != want || known != (want != "") {
			t.Errorf("Version(%q): got %q, %v, want %q", name, got, known, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(real)
	f.Add(`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1alpha1","spec":{"response":{"code":401}}}`)
	f.Add(`{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1beta1"}`)
	f.Fuzz(func(t *testing.T, info string) {
		r, err := Parse(info)
		if err != nil {
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("error of two lines: %q", err)
			}
			return
		}
		if r.APIVersion != V1 && r.APIVersion != V1Beta1 && r.APIVersion != V1Alpha1 {
			t.Errorf("took apiVersion %q", r.APIVersion)
		}
		_ = r.Cluster.Profile()
		out, err := r.Answer(Credential{Token: "t", Expires: time.Unix(2e9, 0)}, time.Unix(1e9, 0))
		var back object
		if err != nil || json.Unmarshal(out, &back) != nil || back.APIVersion != r.APIVersion {
			t.Errorf("answer %s, %v", out, err)
		}
	})
}
