package kubernetes

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

// A server does not put words into the commands that people are told to run.
func TestNamesOfRequests(t *testing.T) {
	for name, good := range map[string]bool{
		"holdfast-prod-4f2a1": true, "csr-x.y": true, "a": true,
		"": false, "x; curl evil | sh": false, "$(reboot)": false, "--all": false, "a/b": false, "..": false, "x\n": false, "Ä": false, "x-": false, strings.Repeat("a", 254): false,
	} {
		if isName(name) != good {
			t.Errorf("%.40q is a name: %v", name, !good)
		}
		if good {
			continue
		}
		c := &Client{Server: "https://api", HTTP: &answers{code: http.StatusCreated, body: fmt.Sprintf(`{"metadata":{"name":%q}}`, name)}}
		told := ""
		_, err := c.RequestCertificate(context.Background(), CertificateRequest{SignerName: "example.com/s", Created: func(name string) { told = name }})
		if err == nil || !strings.Contains(err.Error(), "no valid object name") || told != "" {
			t.Errorf("%.40q: told %q, %v", name, told, err)
		}
	}
}
