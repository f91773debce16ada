package pivcard_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/test/pivcard"
)

// A desk is a card in a reader, and a directory in which tools that judge it
// are run.
type desk struct {
	t    *testing.T
	rig  *pivcard.Rig
	card *pivcard.Card
	dir  string
}

func newDesk(t *testing.T, o pivcard.Options) *desk {
	t.Helper()
	rig := pivcard.Start(t, 1)
	card := rig.NewCard(o)
	rig.Insert(card)
	d := &desk{t, rig, card, t.TempDir()}
	d.run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "ca.key")
	d.run("openssl", "req", "-x509", "-new", "-key", "ca.key", "-subj", "/CN=ca", "-days", "30", "-out", "ca.pem")
	return d
}

// try runs a tool and returns what it prints.
func (d *desk) try(name string, args ...string) (string, error) {
	d.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = d.dir
	cmd.Env = append(os.Environ(), d.rig.Env()...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run is try for a tool that has to succeed.
func (d *desk) run(name string, args ...string) string {
	d.t.Helper()
	out, err := d.try(name, args...)
	if err != nil {
		d.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return out
}

func (d *desk) write(name string, content []byte) {
	d.t.Helper()
	if err := os.WriteFile(filepath.Join(d.dir, name), content, 0o600); err != nil {
		d.t.Fatal(err)
	}
}

func (d *desk) read(name string) []byte {
	d.t.Helper()
	b, err := os.ReadFile(filepath.Join(d.dir, name))
	if err != nil {
		d.t.Fatal(err)
	}
	return b
}

// wants fails when text lacks one of the parts.
func (d *desk) wants(text string, parts ...string) {
	d.t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			d.t.Errorf("%q is not in\n%s", part, text)
		}
	}
}

// generate makes a key and a certificate with yubico-piv-tool and openssl.
func (d *desk) generate(slot, algorithm string) {
	d.t.Helper()
	d.run("yubico-piv-tool", "-a", "generate", "-s", slot, "-A", algorithm, "-o", "pub"+slot+".pem")
	d.run("openssl", "x509", "-new", "-force_pubkey", "pub"+slot+".pem", "-subj", "/CN=slot "+slot,
		"-CA", "ca.pem", "-CAkey", "ca.key", "-days", "30", "-out", "cert"+slot+".pem")
	d.run("yubico-piv-tool", "-a", "import-certificate", "-s", slot, "-i", "cert"+slot+".pem")
}

func TestYubicoPIVTool(t *testing.T) {
	t.Parallel()
	d := newDesk(t, pivcard.Options{Serial: 31337})
	d.wants(d.run("yubico-piv-tool", "-a", "status"), "Version:\t5.4.3", "Serial Number:\t31337", "PIN tries left:\t3")
	for slot, algorithm := range map[string]string{"9a": "ECCP256", "9c": "RSA2048", "82": "ECCP384"} {
		d.generate(slot, algorithm)
		d.wants(d.run("yubico-piv-tool", "-a", "verify-pin", "-P", "123456", "-a", "test-signature", "-s", slot, "-i", "cert"+slot+".pem"), "verification")
		d.write("attested", []byte(d.run("yubico-piv-tool", "-a", "attest", "-s", slot)))
		d.write("device", []byte(d.run("yubico-piv-tool", "-a", "read-certificate", "-s", "f9")))
		d.run("openssl", "verify", "-CAfile", d.rig.RootFile(), "-untrusted", "device", "attested")
		if got, want := d.run("openssl", "x509", "-in", "attested", "-noout", "-pubkey"), d.read("pub"+slot+".pem"); got != string(want) {
			t.Errorf("slot %s: %s is attested, want %s", slot, got, want)
		}
	}
	d.wants(d.run("yubico-piv-tool", "-a", "status"), "Slot 9a:", "Slot 9c:", "Slot 82:", "Algorithm:\tRSA2048", "Subject DN:\tCN=slot 9a")
	d.run("yubico-piv-tool", "-a", "set-chuid", "-a", "set-ccc")
	if d.card.Object(0x5fc102) == nil || d.card.Object(0x5fc107) == nil {
		t.Error("CHUID and CCC are not stored")
	}
}

// TestYubicoPINs has yubico-piv-tool change, block, unblock and reset.
func TestYubicoPINs(t *testing.T) {
	t.Parallel()
	d := newDesk(t, pivcard.Options{})
	tool := func(args ...string) string { return d.run("yubico-piv-tool", args...) }
	refused := func(want string, args ...string) {
		t.Helper()
		out, err := d.try("yubico-piv-tool", args...)
		if err == nil {
			t.Errorf("%q succeeds:\n%s", args, out)
		}
		d.wants(out, want)
	}
	tool("-a", "change-pin", "-P", "123456", "-N", "654321")
	tool("-a", "verify-pin", "-P", "654321")
	refused("2 tries left", "-a", "verify-pin", "-P", "123456")
	tool("-a", "change-puk", "-P", "12345678", "-N", "87654321")
	d.card.SetPINLeft(0)
	refused("blocked", "-a", "verify-pin", "-P", "654321")
	tool("-a", "unblock-pin", "-P", "87654321", "-N", "271828")
	tool("-a", "verify-pin", "-P", "271828", "-a", "pin-retries", "--pin-retries", "5", "--puk-retries", "4")
	d.wants(tool("-a", "status"), "PIN tries left:\t5")
	tool("-a", "set-mgm-key", "-n", "a1b2c3d4e5f6071829304152637485960718293041526374")
	refused("Failed authentication", "-a", "generate", "-s", "9a", "-A", "ECCP256")
	refused("Reset failed", "-a", "reset")
	d.card.SetPINLeft(0)
	d.card.SetPUKLeft(0)
	tool("-a", "reset")
	tool("-a", "generate", "-s", "9a", "-A", "ECCP256")
	d.run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "own.key")
	tool("-a", "import-key", "-s", "9d", "-i", "own.key")
	refused("Failed to attest", "-a", "attest", "-s", "9d")
}

// openSC finds OpenSC's PKCS #11 module, whose directory is the machine's own.
func openSC(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob("/usr/lib/*/opensc-pkcs11.so")
	if err != nil || len(found) == 0 {
		t.Fatalf("no opensc-pkcs11.so: install the package opensc-pkcs11: %v", err)
	}
	return found[0]
}

// TestOpenSC lists and signs with keys whose slots have a certificate: OpenSC
// shows no others.
func TestOpenSC(t *testing.T) {
	t.Parallel()
	d := newDesk(t, pivcard.Options{})
	d.generate("9a", "ECCP256")
	d.generate("9c", "RSA2048")
	d.wants(d.run("pkcs15-tool", "--list-keys", "--list-certificates"), "PIV AUTH key", "SIGN key", "Certificate for Digital Signature", "Key ref        : 154 (0x9A)")
	module := openSC(t)
	d.wants(d.run("pkcs11-tool", "--module", module, "-O"), "PIV AUTH pubkey", "slot 9a", "RSA 2048 bits")
	d.write("data", []byte("some text"))
	d.run("openssl", "dgst", "-sha256", "-binary", "-out", "digest", "data")
	before := d.card.PINTries()
	d.run("pkcs11-tool", "--module", module, "--login", "--pin", "123456", "--sign", "-m", "ECDSA", "--id", "01",
		"--signature-format", "openssl", "-i", "digest", "-o", "signature")
	d.run("openssl", "pkeyutl", "-verify", "-pubin", "-inkey", "pub9a.pem", "-in", "digest", "-sigfile", "signature")
	if got := d.card.PINTries() - before; got != 1 {
		t.Errorf("one signature sent %d PINs", got)
	}
	d.run("pkcs11-tool", "--module", module, "--login", "--pin", "123456", "--sign", "-m", "SHA256-RSA-PKCS", "--id", "02",
		"-i", "data", "-o", "signature")
	d.run("openssl", "dgst", "-sha256", "-verify", "pub9c.pem", "-signature", "signature", "data")
	if out, err := d.try("pkcs11-tool", "--module", module, "--login", "--pin", "000000", "-O"); err == nil || !strings.Contains(out, "CKR_PIN_INCORRECT") {
		t.Errorf("a wrong PIN: %v\n%s", err, out)
	}
	if got := d.card.PINLeft(); got != 2 {
		t.Errorf("%d tries left, want 2", got)
	}
	d.wants(d.run("opensc-tool", "--name"), "Personal Identity Verification Card")
}

// TestOtherSerial swaps the card: the tool tells them apart by their serials.
func TestOtherSerial(t *testing.T) {
	t.Parallel()
	d := newDesk(t, pivcard.Options{Serial: 1})
	other := d.rig.NewCard(pivcard.Options{Serial: 2, Firmware: pivcard.Firmware{5, 2, 7}})
	d.wants(d.run("yubico-piv-tool", "-a", "status"), "Serial Number:\t1\n")
	d.rig.Remove(d.card)
	if out, err := d.try("yubico-piv-tool", "-a", "status"); err == nil {
		t.Errorf("no card, and yet\n%s", out)
	}
	d.rig.Insert(other)
	d.wants(d.run("yubico-piv-tool", "-a", "status"), "Serial Number:\t2\n", "Version:\t5.2.7")
	d.rig.Remove(other)
	d.rig.Insert(d.rig.NewCard(pivcard.Options{NotPIV: true}))
	if out, err := d.try("yubico-piv-tool", "-a", "status"); err == nil {
		t.Errorf("no PIV, and yet\n%s", out)
	}
}
