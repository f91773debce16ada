package test

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"holdfast/client/profile"
	"holdfast/internal/policy"
	"holdfast/test/daemon"
)

// TestExampleProfile holds the profile that people start from to the reader of
// profiles: every word is in it, and what its comments call a default is one.
func TestExampleProfile(t *testing.T) {
	text := read(t, "packaging/examples/profile.yaml")
	p, err := profile.Parse("prod", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range words(reflect.TypeFor[profile.Profile]()) {
		if !strings.Contains(text, word+":") {
			t.Errorf("profile.yaml has no %s", word)
		}
	}
	if p.Proxy.IdleTimeout != profile.DefaultIdleTimeout || p.Proxy.MaxAge != profile.DefaultMaxAge ||
		p.Renewal.Fraction != profile.DefaultFraction || p.Token.Lifetime != profile.DefaultTokenLifetime || p.Certificate.Lifetime != 10*time.Minute {
		t.Errorf("the example does not have the defaults: %+v", p)
	}
	if _, err := profile.Parse("prod", []byte(strings.Replace(text, "key:", "kee:", 1))); err == nil {
		t.Error("a misspelt word passed")
	}
}

// words lists the YAML names of a struct's fields, those of structs within too.
func words(of reflect.Type) []string {
	var all []string
	for i := range of.NumField() {
		f := of.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if name == "-" {
			continue
		}
		all = append(all, name)
		if f.Type.Kind() == reflect.Struct {
			all = append(all, words(f.Type)...)
		}
	}
	return all
}

// TestBrokerManual holds the page to the words of profiles and of the broker's
// policy.
func TestBrokerManual(t *testing.T) {
	page := strings.ReplaceAll(read(t, "packaging/man/holdfast-broker.8"), `\-`, "-")
	for _, word := range append(words(reflect.TypeFor[profile.Profile]()), "credentials", "profiles", string(policy.Proxy), string(policy.Certificate), string(policy.Token), string(policy.Status)) {
		if !strings.Contains(page, word) {
			t.Errorf("holdfast-broker(8) does not say what %s is", word)
		}
	}
}

// TestExampleBrokerConfiguration has the broker read the example: every setting
// has a value that comes from there.
func TestExampleBrokerConfiguration(t *testing.T) {
	path := filepath.Join(root(t), "packaging/examples/broker.yaml")
	out, err := exec.Command(daemon.Program(t, daemon.BrokerProgram), "--config", path, "--explain").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	page := strings.ReplaceAll(read(t, "packaging/man/holdfast-broker.8"), `\-`, "-")
	settings := 0
	for line := range strings.Lines(string(out)) {
		settings++
		if !strings.Contains(line, "("+path+":") {
			t.Errorf("broker.yaml does not say %s", strings.TrimSpace(line))
		}
		if name := strings.Fields(line)[0]; !strings.Contains(page, `\fB--`+name+`\fR`) {
			t.Errorf("holdfast-broker(8) does not say what --%s is", name)
		}
	}
	if settings < 9 {
		t.Errorf("the broker shows %d settings: %s", settings, out)
	}
}

// TestBrokerManualListsMetrics: whoever sets up a dashboard has the names.
func TestBrokerManualListsMetrics(t *testing.T) {
	page := read(t, "packaging/man/holdfast-broker.8")
	names := map[string]bool{}
	for _, path := range sourceFiles(t) {
		if !strings.HasPrefix(path, "client/broker/") || strings.HasSuffix(path, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`(?:Counter|Gauge|Histogram)\("(holdfast_\w+)"`).FindAllStringSubmatch(read(t, path), -1) {
			names[m[1]] = true
		}
	}
	if len(names) < 10 {
		t.Fatalf("found %d metrics in the broker's source", len(names))
	}
	for name := range names {
		if !strings.Contains(page, name) {
			t.Errorf("holdfast-broker(8) does not list %s", name)
		}
	}
}

// TestExampleBrokerPolicy holds the example to the reader of broker policies.
func TestExampleBrokerPolicy(t *testing.T) {
	path := "packaging/examples/broker-policy.yaml"
	text := read(t, path)
	// The group is one that not every machine has.
	text = strings.Replace(text, "groups: [dev]", "groups: [adm]", 1)
	file := filepath.Join(t.TempDir(), "broker-policy.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := policy.ParseBrokerFile(file); err != nil {
		t.Error(err)
	}
	if _, err := policy.Parse(path, []byte(text)); err == nil {
		t.Error("an agent takes the broker's policy")
	}
}

// TestProxyDropIn: what the drop-in sets are settings of the unit that it is for.
func TestProxyDropIn(t *testing.T) {
	unit, dropIn := read(t, "systemd/system/holdfast-broker.service"), read(t, "packaging/examples/holdfast-broker-proxy.conf")
	set := 0
	for line := range strings.Lines(dropIn) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || strings.HasPrefix(line, "#") {
			continue
		}
		set++
		if !strings.Contains(unit, "\n"+key+"=\n") {
			t.Errorf("the unit does not empty %s", key)
		}
		if value != "CAP_SYS_PTRACE CAP_DAC_READ_SEARCH" {
			t.Errorf("%s is %q", key, value)
		}
	}
	if set != 2 {
		t.Errorf("the drop-in sets %d things, want 2", set)
	}
}
