package config

import (
	"strings"
	"testing"
)

// The words are in configuration files: they may be added to, not changed.
func TestSettingsAreStable(t *testing.T) {
	var got []string
	for _, s := range settings() {
		got = append(got, s.name)
	}
	want := "system state socket admin-socket policy device piv piv-program piv-roots prompt pinentry remember-pins audit owner-auth-file limits.queue-per-peer limits.queue-total " +
		"limits.connections-per-uid limits.unlock-seconds limits.unlock-max-seconds"
	if g := strings.Join(got, " "); g != want {
		t.Errorf("got %s, want %s", g, want)
	}
}

// What a setting shows is what it takes.
func TestSettingsRoundTrip(t *testing.T) {
	values := map[kind]string{integer: "7", boolean: "true"}
	texts := map[string]string{"piv": "on", "device": "swtpm:/run/s", "prompt": "terminal", "remember-pins": "secret-service"}
	for _, s := range settings() {
		value := values[s.kind]
		if s.kind == text {
			value = "/some/path"
		}
		if v, found := texts[s.name]; found {
			value = v
		}
		c := empty()
		if err := c.set(s, value, "here"); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		if got := s.get(c); got != value {
			t.Errorf("%s: got %q, want %q", s.name, got, value)
		}
		if got := c.Origin(s.name); got != "here" {
			t.Errorf("%s: got origin %q, want here", s.name, got)
		}
		if err := c.set(s, "\x01", "there"); err == nil {
			t.Errorf("%s took nonsense", s.name)
		}
		if got := c.Origin(s.name); got != "here" {
			t.Errorf("%s: got origin %q after nonsense, want here", s.name, got)
		}
	}
}

// A setting with a flag of its own has help, and no two have one name.
func TestSettingsAreApart(t *testing.T) {
	seen := map[string]bool{"config": true}
	for _, s := range settings() {
		if seen[s.name] {
			t.Errorf("%s is there twice", s.name)
		}
		seen[s.name] = true
		if strings.Contains(s.name, ".") && s.usage != "" {
			t.Errorf("%s has a flag", s.name)
		}
	}
}

func TestNumber(t *testing.T) {
	for value, want := range map[string]int{
		"1": 1, "10": 10, "0": 0, "-1": 0, "11": 0, "": 0, "+1": 0, "01": 0, "1 ": 0, "0x1": 0, "1e1": 0, "99999999999999999999": 0,
	} {
		got, err := number(value, 10)
		if (err == nil) != (want > 0) || err == nil && got != want {
			t.Errorf("%q: got %d, %v, want %d", value, got, err, want)
		}
	}
}
