package enroll

import (
	"crypto/x509/pkix"
	"encoding/asn1"
	"testing"
)

func TestParseSubject(t *testing.T) {
	tests := map[string]string{
		"CN=alice":                        "CN=alice",
		"CN=alice,O=dev":                  "CN=alice,O=dev",
		"o=dev, cn=alice":                 "CN=alice,O=dev",
		"CN=system:node:n1,O=system:node": "CN=system:node:n1,O=system:node",
		`CN=a\,b\=c\\d`:                   `CN=a\,b=c\\d`,
		"O=one,O=two":                     "O=one+O=two",
		"C=DE,ST=B,L=B,STREET=S 1,POSTALCODE=1,OU=u,SERIALNUMBER=7,CN=x": "SERIALNUMBER=7,CN=x,OU=u,POSTALCODE=1,STREET=S 1,L=B,ST=B,C=DE",
		"": "",
	}
	for text, want := range tests {
		name, err := ParseSubject(text)
		if err != nil || name.String() != want {
			t.Errorf("%q: got %q, %v, want %q", text, name.String(), err, want)
		}
	}
	name, err := ParseSubject("UID=alice")
	if err != nil || len(name.ExtraNames) != 1 || name.ExtraNames[0].Value != "alice" {
		t.Errorf("UID: got %v, %v", name.ExtraNames, err)
	}
}

func TestParseSubjectRefusals(t *testing.T) {
	for _, text := range []string{
		"alice", "=alice", "CN=", "CN=a,", ",CN=a", "CN=a,,O=b", "CN=a,CN=b", "DC=example", "CN=a+O=b", `CN="a"`, `CN=a\`, "CN=a=b", "CN=a,O",
	} {
		if name, err := ParseSubject(text); err == nil {
			t.Errorf("%q: got %q, want an error", text, name.String())
		}
	}
}

// An accepted name fits into a certificate and is read back unchanged.
func FuzzParseSubject(f *testing.F) {
	seeds := []string{"CN=alice,O=dev", `CN=a\,b`, "UID=x", "C=DE,ST=B", "CN=a+O=b", `\`, "CN=ä", "O=\xff"}
	if len(seeds) == 0 {
		f.Fatal("no seeds")
	}
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, err := ParseSubject(text)
		if err != nil {
			return
		}
		der, err := asn1.Marshal(name.ToRDNSequence())
		if err != nil {
			return // not UTF-8: x509 refuses it with its own words
		}
		var sequence pkix.RDNSequence
		if _, err := asn1.Unmarshal(der, &sequence); err != nil {
			t.Errorf("%q became a name that cannot be read back: %v", text, err)
		}
	})
}
