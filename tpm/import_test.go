package tpm

import (
	"bytes"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	keyfile "github.com/foxboron/go-tpm-keyfiles"
	"github.com/google/go-tpm/tpm2"
	"github.com/google/go-tpm/tpm2/transport"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/test/swtpm"
)

// A bench is a device that our backend and other programs use in turn.
type bench struct {
	t      *testing.T
	device *swtpm.TPM
	dir    string
}

func newBench(t *testing.T) bench { return bench{t, swtpm.Start(t), t.TempDir()} }

// ours runs f with a backend and closes it, so that others get the connection.
func (b bench) ours(f func(*TPM)) {
	b.t.Helper()
	backend := open(b.t, Config{Device: b.device.Device()})
	f(backend)
	backend.Close()
}

// run runs a program in the bench's directory and returns its output.
func (b bench) run(name string, args ...string) string {
	b.t.Helper()
	c := exec.Command(name, args...)
	c.Dir = b.dir
	c.Env = append(os.Environ(), b.device.Env()...)
	out, err := c.CombinedOutput()
	if err != nil {
		b.t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

func (b bench) read(name string) []byte {
	b.t.Helper()
	data, err := os.ReadFile(filepath.Join(b.dir, name))
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}

func (b bench) write(name string, data []byte) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.dir, name), data, 0o600); err != nil {
		b.t.Fatal(err)
	}
}

// wantImport imports file and signs; imported says whether that takes the flag.
func (b bench) wantImport(file []byte, asked keys.Template, imported bool) {
	b.t.Helper()
	b.ours(func(backend *TPM) {
		_, err := backend.Import(soon(b.t), asked, file, false)
		if imported {
			wantKind(b.t, err, fault.Unsupported)
		} else if err != nil {
			b.t.Fatalf("Import: %v", err)
		}
		m, err := backend.Import(soon(b.t), asked, file, true)
		if err != nil {
			b.t.Fatalf("Import with the flag: %v", err)
		}
		if m.Imported != imported {
			b.t.Errorf("got imported %v, want %v", m.Imported, imported)
		}
		scheme, err := keys.SchemeFor(asked.Algorithm, asked.Purpose)
		if err != nil {
			b.t.Fatal(err)
		}
		mustSign(b.t, backend, m, scheme)
	})
}

func TestImportFromOpenSSL(t *testing.T) {
	b := newBench(t)
	genpkey := func(out string, args ...string) []byte {
		b.run("openssl", append([]string{"genpkey", "-provider", "tpm2", "-provider", "default", "-out", out}, args...)...)
		return b.read(out)
	}
	b.wantImport(genpkey("ec.pem", "-algorithm", "EC", "-pkeyopt", "group:P-256"), es256, true) // it also decrypts
	rsa := genpkey("rsa.pem", "-algorithm", "RSA", "-pkeyopt", "bits:2048")
	b.wantImport(rsa, keys.Template{Purpose: keys.TLSClient, Algorithm: keys.RS256}, true)
	pss := genpkey("pss.pem", "-algorithm", "RSA-PSS", "-pkeyopt", "bits:2048", "-pkeyopt", "digest:sha256")
	b.ours(func(backend *TPM) {
		_, err := backend.Import(soon(t), keys.Template{Purpose: keys.TLSClient, Algorithm: keys.RS256}, pss, true)
		wantKind(t, err, fault.Unsupported) // such keys are restricted: they sign only what the TPM has hashed
	})
}

func TestImportFromTools(t *testing.T) {
	b := newBench(t)
	b.toolsParent()
	b.run("tpm2_create", "-C", "parent.ctx", "-G", "ecc256:ecdsa-sha256", "-u", "k.pub", "-r", "k.priv",
		"-a", "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|sign|noda")
	b.wantImport(b.assemble("k.pub", "k.priv"), es256, false)
	b.run("tpm2_create", "-C", "parent.ctx", "-G", "ecc256:ecdsa-sha256", "-u", "k.pub", "-r", "k.priv",
		"-a", "sensitivedataorigin|userwithauth|sign|noda")
	b.wantImport(b.assemble("k.pub", "k.priv"), es256, true) // it can be duplicated
}

// toolsParent makes the standard parent with tpm2-tools.
func (b bench) toolsParent() {
	b.t.Helper()
	unique := filepath.Join(b.dir, "unique")
	b.write("unique", []byte{0, 0, 0, 0})
	b.run("tpm2_createprimary", "-Q", "-C", "o", "-G", "ecc256:aes128cfb", "-c", "parent.ctx", "-u", unique,
		"-a", "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|decrypt|noda")
	b.run("tpm2_flushcontext", "-t")
}

// assemble makes a key file of what tpm2_create wrote.
func (b bench) assemble(public, private string) []byte {
	b.t.Helper()
	pub, err := tpm2.Unmarshal[tpm2.TPM2BPublic](b.read(public))
	if err != nil {
		b.t.Fatal(err)
	}
	priv, err := tpm2.Unmarshal[tpm2.TPM2BPrivate](b.read(private))
	if err != nil {
		b.t.Fatal(err)
	}
	f := keyfile.NewTPMKey(keyfile.OIDLoadableKey, *pub, *priv)
	f.EmptyAuth = true
	return f.Bytes()
}

// A toolConn is what go-tpm-keyfiles wants.
type toolConn struct{ transport.TPM }

func (toolConn) Close() error { return nil }

// TestImportFromKeyfiles takes keys as ssh-tpm-agent makes them.
func TestImportFromKeyfiles(t *testing.T) {
	b := newBench(t)
	conn, err := b.device.Dial()
	if err != nil {
		t.Fatal(err)
	}
	k, err := keyfile.NewLoadableKey(toolConn{conn}, tpm2.TPMAlgECC, 256, nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	k.EmptyAuth = true
	b.wantImport(k.Bytes(), es256, k.HasSigner() && len(freedoms(mustArea(t, k))) != 0)
}

func mustArea(t *testing.T, k *keyfile.TPMKey) *tpm2.TPMTPublic {
	t.Helper()
	area, err := k.Pubkey.Contents()
	if err != nil {
		t.Fatal(err)
	}
	return area
}

// TestExportToOpenSSL lets tpm2-openssl sign with our files.
func TestExportToOpenSSL(t *testing.T) {
	b := newBench(t)
	for _, asked := range []keys.Template{
		es256,
		{Purpose: keys.TLSServer, Algorithm: keys.ES384},
		{Purpose: keys.ServiceAccount, Algorithm: keys.RS256},
	} {
		var m keys.Material
		b.ours(func(backend *TPM) {
			m = create(t, backend, asked)
			file, err := backend.Export(m)
			if err != nil {
				t.Fatal(err)
			}
			b.write("key.pem", file)
		})
		hash := "-sha256"
		if asked.Algorithm == keys.ES384 {
			hash = "-sha384"
		}
		b.write("public.pem", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: m.Public}))
		b.write("message", []byte("a message"))
		b.run("openssl", "dgst", hash, "-provider", "tpm2", "-provider", "default", "-propquery", "?provider=tpm2", "-sign", "key.pem", "-out", "signature", "message")
		out := b.run("openssl", "dgst", hash, "-verify", "public.pem", "-signature", "signature", "message")
		if !strings.Contains(out, "Verified OK") {
			t.Errorf("%s: got %q", asked.Algorithm, out)
		}
	}
}

// TestExportToTools reads the attributes of our keys with tpm2-tools.
func TestExportToTools(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		asked keys.Template
		want  string
	}{
		{es256, "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|noda|sign"},
		{pinned(false), "fixedtpm|fixedparent|sensitivedataorigin|userwithauth|sign"},
	} {
		b.ours(func(backend *TPM) {
			k, err := parseMaterial(create(t, backend, c.asked))
			if err != nil {
				t.Fatal(err)
			}
			b.write("k.pub", tpm2.Marshal(k.file.Pubkey))
			b.write("k.priv", tpm2.Marshal(k.file.Privkey))
		})
		b.toolsParent()
		b.run("tpm2_load", "-Q", "-C", "parent.ctx", "-u", "k.pub", "-r", "k.priv", "-c", "k.ctx")
		b.run("tpm2_flushcontext", "-t")
		out := b.run("tpm2_readpublic", "-c", "k.ctx")
		b.run("tpm2_flushcontext", "-t")
		if !strings.Contains(out, "value: "+c.want+"\n") || !strings.Contains(out, "value: ecdsa\n") {
			t.Errorf("tpm2_readpublic says\n%s\nwant %s", out, c.want)
		}
	}
}

func TestImportRefuses(t *testing.T) {
	b, _, _ := behind(t, false)
	m := create(t, b, es256)
	file, err := b.Export(m)
	if err != nil {
		t.Fatal(err)
	}
	good, err := keyfile.Decode(file)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*keyfile.TPMKey)) []byte {
		k := *good
		f(&k)
		return k.Bytes()
	}
	block, _ := pem.Decode(file)
	for _, c := range []struct {
		name  string
		file  []byte
		asked keys.Template
		want  fault.Kind
	}{
		{"nothing", nil, es256, fault.BadRequest},
		{"two files", append(bytes.Clone(file), file...), es256, fault.BadRequest},
		{"another type", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: block.Bytes}), es256, fault.BadRequest},
		{"a byte too many", pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: append(bytes.Clone(block.Bytes), 0)}), es256, fault.BadRequest},
		{"9 KiB", pem.EncodeToMemory(&pem.Block{Type: block.Type, Bytes: make([]byte, 9<<10)}), es256, fault.BadRequest},
		{"another algorithm", file, keys.Template{Purpose: keys.TLSClient, Algorithm: keys.ES384}, fault.BadRequest},
		{"a PIN for a key without", file, pinned(false), fault.BadRequest},
		{"a policy", change(func(k *keyfile.TPMKey) {
			k.Policy = []*keyfile.TPMPolicy{{CommandCode: 1, CommandPolicy: []byte{1}}}
		}), es256, fault.Unsupported},
		{"an importable key", change(func(k *keyfile.TPMKey) { k.Keytype = keyfile.OIDImportableKey }), es256, fault.Unsupported},
		{"another hierarchy", change(func(k *keyfile.TPMKey) { k.Parent = tpm2.TPMRHEndorsement }), es256, fault.Unsupported},
		{"damaged", change(func(k *keyfile.TPMKey) {
			k.Privkey.Buffer = bytes.Clone(k.Privkey.Buffer)
			k.Privkey.Buffer[40] ^= 1
		}), es256, fault.KeyLost},
		{"a parent that is not there", change(func(k *keyfile.TPMKey) { k.Parent = 0x81000001 }), es256, fault.NotFound},
	} {
		_, err := b.Import(soon(t), c.asked, c.file, true)
		if got := fault.KindOf(err); got != c.want {
			t.Errorf("%s: got %q (%v), want %q", c.name, got, err, c.want)
		}
	}
	if _, err := b.Import(soon(t), es256, file, false); err != nil {
		t.Errorf("the file that the others were made from: %v", err)
	}
}
