package loopback

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"holdfast/internal/fault"
)

// device seals in memory, and fails when told to.
type device struct {
	sealed   map[string][]byte
	unsealed error
	seals    error
}

func (d *device) Seal(_ context.Context, name string, secret []byte, replace bool) error {
	if d.seals != nil {
		return d.seals
	}
	if d.sealed[name] != nil && !replace {
		return &fault.Error{Kind: fault.BadRequest, Message: "the name is taken"}
	}
	if d.sealed == nil {
		d.sealed = map[string][]byte{}
	}
	d.sealed[name] = bytes.Clone(secret)
	return nil
}

func (d *device) Unseal(_ context.Context, name string) ([]byte, error) {
	if d.unsealed != nil {
		return nil, d.unsealed
	}
	if d.sealed[name] == nil {
		return nil, &fault.Error{Kind: fault.Denied, Message: "there is no such secret"}
	}
	return bytes.Clone(d.sealed[name]), nil
}

func kind(k fault.Kind) error { return &fault.Error{Kind: k, Message: string(k)} }

func options(t *testing.T) (Options, *device) {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	d := &device{}
	return Options{State: dir, Sealer: d}, d
}

func open(t *testing.T, o Options) *Identity {
	t.Helper()
	i, err := Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestSealedKeyStays(t *testing.T) {
	o, _ := options(t)
	first := open(t, o)
	if first.KeyFile || first.Key != "sealed by the TPM" || !first.Replaced.IsZero() {
		t.Errorf("the first: %q, %v", first.Key, first.Replaced)
	}
	again := open(t, o)
	if again.PEM != first.PEM || !again.Replaced.IsZero() {
		t.Error("opened again, it is another")
	}
	if certificate, key := Kept(o.State); certificate != first.PEM || key != first.Key {
		t.Errorf("kept: %q", key)
	}
	if _, err := os.Lstat(filepath.Join(o.State, keyFile)); err == nil {
		t.Error("the key is in a file too")
	}
	secret, err := first.Certificate.PrivateKey.(interface{ Bytes() ([]byte, error) }).Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(filepath.Join(o.State, stateFile)); bytes.Contains(text, secret) {
		t.Error("the state has the key")
	}
}

func TestWithoutADevice(t *testing.T) {
	for name, change := range map[string]func(*Options, *device){
		"no device can":    func(_ *Options, d *device) { d.seals = kind(fault.Unsupported) },
		"a file is wanted": func(o *Options, d *device) { o.KeyFile = true },
	} {
		o, d := options(t)
		change(&o, d)
		i := open(t, o)
		path := filepath.Join(o.State, keyFile)
		info, err := os.Lstat(path)
		if err != nil || info.Mode().Perm() != 0o600 || i.Key != path || !i.KeyFile {
			t.Errorf("%s: %v %v, key is %q", name, info, err, i.Key)
		}
		if len(d.sealed) != 0 {
			t.Errorf("%s: it was sealed", name)
		}
		d.unsealed = kind(fault.Internal)
		if open(t, o).PEM != i.PEM {
			t.Errorf("%s: opened again, it is another", name)
		}
		if err := os.Chmod(path, 0o640); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), "others can read it") {
			t.Errorf("%s: a key that others can read: %v", name, err)
		}
		os.Remove(path)
		if made := open(t, o); made.PEM == i.PEM || made.Replaced.IsZero() {
			t.Errorf("%s: the key's file is gone, and nothing was replaced", name)
		}
	}
}

func TestLostKeyIsReplaced(t *testing.T) {
	for _, k := range []fault.Kind{fault.KeyLost, fault.IdentityChanged} {
		o, d := options(t)
		first := open(t, o)
		if err := SetAddress(o.State, "127.0.0.1:4711"); err != nil {
			t.Fatal(err)
		}
		d.unsealed = kind(k)
		second := open(t, o)
		if second.PEM == first.PEM || second.Replaced.IsZero() {
			t.Errorf("%s: not replaced", k)
		}
		d.unsealed = nil
		if third := open(t, o); third.PEM != second.PEM || third.Replaced.IsZero() {
			t.Errorf("%s: nothing says any more that it was replaced", k)
		}
		if a, err := Address(o.State); a != "127.0.0.1:4711" || err != nil {
			t.Errorf("%s: the address is now %q, %v", k, a, err)
		}
	}
	o, d := options(t)
	first := open(t, o)
	delete(d.sealed, SealedName)
	if open(t, o).PEM == first.PEM {
		t.Error("the secret is missing, and nothing was replaced")
	}
}

// A device that may come back is waited for.
func TestKeyIsNotReplaced(t *testing.T) {
	for _, k := range []fault.Kind{fault.Denied, fault.Busy, fault.DeviceAbsent, fault.DeviceLocked, fault.DeviceWedged, fault.DeviceFailed, fault.Deadline, fault.Internal} {
		o, d := options(t)
		first := open(t, o)
		d.unsealed = kind(k)
		if _, err := Open(context.Background(), o); fault.KindOf(err) != k {
			t.Errorf("%s: got %v", k, err)
		}
		d.unsealed = nil
		if open(t, o).PEM != first.PEM {
			t.Errorf("%s: replaced", k)
		}
	}
	o, d := options(t)
	d.seals = kind(fault.DeviceAbsent)
	if _, err := Open(context.Background(), o); fault.KindOf(err) != fault.DeviceAbsent {
		t.Errorf("no device yet: %v", err)
	}
	if certificate, _ := Kept(o.State); certificate != "" {
		t.Error("a certificate without a key is kept")
	}
}

func TestDirectoryHasToBePrivate(t *testing.T) {
	o, _ := options(t)
	if err := os.Chmod(o.State, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), o); err == nil {
		t.Error("opened in a directory that others can read")
	}
}

func TestDamagedStateStays(t *testing.T) {
	o, _ := options(t)
	open(t, o)
	path := filepath.Join(o.State, stateFile)
	if err := os.WriteFile(path, []byte(`{"adress":"127.0.0.1:1"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(context.Background(), o); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v, want the file's name", err)
	}
	if text, _ := os.ReadFile(path); !bytes.Contains(text, []byte("adress")) {
		t.Error("the damaged file was changed")
	}
}

// server serves TLS with an identity and says hello.
func server(t *testing.T, i *Identity) string {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{i.Certificate}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				conn.Write([]byte("hello"))
			}()
		}
	}()
	return l.Addr().String()
}

// Kubeconfigs pin the certificate itself: what verifies it has to take a leaf for
// a root.
func TestPinnedCertificateVerifies(t *testing.T) {
	o, _ := options(t)
	i := open(t, o)
	o2, _ := options(t)
	other := open(t, o2)
	address := server(t, i)
	for name, test := range map[string]struct {
		pinned *Identity
		asked  string
		ok     bool
	}{
		"a profile's name":          {i, "prod.holdfast.internal", true},
		"the address":               {i, "127.0.0.1", true},
		"another name":              {i, "prod.example.org", false},
		"localhost":                 {i, "localhost", false},
		"somebody else on the port": {other, "prod.holdfast.internal", false},
	} {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM([]byte(test.pinned.PEM))
		conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool, ServerName: test.asked})
		if err == nil {
			conn.Close()
		}
		if (err == nil) != test.ok {
			t.Errorf("crypto/tls, %s: %v", name, err)
		}
		if text, ok := openssl(t, test.pinned, address, test.asked); ok != test.ok {
			t.Errorf("openssl, %s: accepted %v\n%s", name, ok, text)
		}
	}
}

// openssl reports whether openssl s_client takes the server for the pinned one.
func openssl(t *testing.T, pinned *Identity, address, name string) (string, bool) {
	t.Helper()
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, []byte(pinned.PEM), 0o600); err != nil {
		t.Fatal(err)
	}
	verify := []string{"-verify_hostname", name, "-servername", name}
	if net.ParseIP(name) != nil {
		verify = []string{"-verify_ip", name}
	}
	cmd := exec.Command("openssl", append([]string{"s_client", "-connect", address, "-CAfile", ca, "-verify_return_error", "-purpose", "sslserver"}, verify...)...)
	text, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), err == nil && strings.Contains(string(text), "Verify return code: 0 (ok)")
}

func TestAddresses(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:6443": true, "127.0.0.1:0": true, "127.1.2.3:1": true,
		"0.0.0.0:1": false, "10.0.0.1:1": false, "[::1]:1": false, "localhost:1": false, "127.0.0.1": false, "": false, ":1": false, "127.0.0.1:65536": false,
	} {
		if err := CheckAddress(address); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	dir := f.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		f.Fatal(err)
	}
	if _, err := Open(context.Background(), Options{State: dir, Sealer: &device{}}); err != nil {
		f.Fatal(err)
	}
	good, err := os.ReadFile(filepath.Join(dir, stateFile))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"address":"127.0.0.1:1","replaced":"2026-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		kept, err := parse(data)
		if err != nil {
			return
		}
		if kept.Address != "" && CheckAddress(kept.Address) != nil {
			t.Errorf("took the address %q", kept.Address)
		}
		if kept.Certificate != "" {
			if _, err := assemble(kept.Certificate, make([]byte, 32)); err == nil {
				t.Error("a key of zeroes fits")
			}
		}
	})
}
