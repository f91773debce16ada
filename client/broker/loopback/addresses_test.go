package loopback

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func addresses(t *testing.T, o Options, i *Identity) *Addresses {
	t.Helper()
	a, err := OpenAddresses(o.State, i)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func own(t *testing.T, a *Addresses, name string) Own {
	t.Helper()
	got, err := a.Of(name)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestAddressOfAProfile(t *testing.T) {
	o, _ := options(t)
	i := open(t, o)
	a := addresses(t, o, i)
	prod, stage := own(t, a, "prod"), own(t, a, "stage")
	if prod.Address.String() != "127.84.175.150" { // kubeconfigs have it: it does not change
		t.Errorf("got %v", prod.Address)
	}
	if prod.Address == stage.Address || prod.PEM == stage.PEM {
		t.Errorf("two profiles share %v", prod.Address)
	}
	if again := own(t, a, "prod"); again != prod {
		t.Error("asked again, it is another")
	}
	again := addresses(t, o, open(t, o))
	if own(t, again, "prod") != prod {
		t.Error("opened again, it is another")
	}
	if name, certificate := again.At(stage.Address); name != "stage" || certificate == nil {
		t.Errorf("at %v: %q", stage.Address, name)
	}
	if name, certificate := again.At(netip.MustParseAddr("127.0.0.1")); name != "" || certificate != nil {
		t.Errorf("at the shared address: %q", name)
	}
}

// The address in the kubeconfig is the name that a client verifies.
func TestOwnCertificateVerifies(t *testing.T) {
	o, _ := options(t)
	a := addresses(t, o, open(t, o))
	prod := own(t, a, "prod")
	_, certificate := a.At(prod.Address)
	l, err := tls.Listen("tcp", net.JoinHostPort(prod.Address.String(), "0"), &tls.Config{Certificates: []tls.Certificate{*certificate}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(prod.PEM))
	for name, ok := range map[string]bool{"": true, prod.Address.String(): true, "prod.holdfast.internal": true, "stage.holdfast.internal": false, "127.0.0.1": false} {
		conn, err := tls.Dial("tcp", l.Addr().String(), &tls.Config{RootCAs: pool, ServerName: name})
		if err == nil {
			conn.Close()
		}
		if (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestDerivedAddresses(t *testing.T) {
	taken := map[netip.Addr]bool{}
	for range 1000 { // the same name, as if every address before were another profile's
		ip := derive("prod", func(a netip.Addr) bool { return taken[a] })
		if b := ip.As4(); !ownAddresses.Contains(ip) || taken[ip] || b[3] == 0 || b[3] == 255 {
			t.Fatalf("got %v", ip)
		}
		taken[ip] = true
	}
}

// When the proxy's key was lost, the addresses stay.
func TestAddressesOutliveTheKey(t *testing.T) {
	o, d := options(t)
	before := own(t, addresses(t, o, open(t, o)), "prod")
	delete(d.sealed, SealedName)
	after := own(t, addresses(t, o, open(t, o)), "prod")
	if after.Address != before.Address || after.PEM == before.PEM {
		t.Errorf("got %v, want the same address %v and another certificate", after.Address, before.Address)
	}
}

func TestDamagedAddressesStay(t *testing.T) {
	o, _ := options(t)
	i := open(t, o)
	path := filepath.Join(o.State, addressesFile)
	for _, text := range []string{
		"", "{}", `{"profiles":{"prod":{"address":"127.0.0.1","certificate":""}}}`, `{"profiles":{"prod":{"address":"10.0.0.1","certificate":""}}}`,
		`{"profiles":{"a":{"address":"127.64.0.1","certificate":""},"b":{"address":"127.64.0.1","certificate":""}}}`,
		`{"profiles":{"../x":{"address":"127.64.0.1","certificate":""}}}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenAddresses(o.State, i); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want the file's name", text, err)
		}
		if kept, _ := os.ReadFile(path); string(kept) != text {
			t.Errorf("%s: the file was changed", text)
		}
	}
}

func FuzzParseAddresses(f *testing.F) {
	f.Add([]byte(`{"profiles":{"prod":{"address":"127.64.0.1","certificate":"x"}}}`))
	f.Add([]byte(`{"profiles":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		kept, err := parseAddresses(data)
		if err != nil {
			return
		}
		for name, r := range kept {
			if !r.Address.IsLoopback() || r.Address.As4()[1] < 64 {
				t.Errorf("%s has %v", name, r.Address)
			}
		}
	})
}

func TestListenAll(t *testing.T) {
	l, err := ListenAll(0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if got := ReachOf(l); got != All {
		t.Errorf("the reach is %v", got)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, ip := range []string{"127.0.0.1", "127.64.0.1", "127.127.255.254"} {
		conn, err := net.Dial("tcp", net.JoinHostPort(ip, port))
		if err != nil {
			t.Errorf("%s: %v", ip, err)
			continue
		}
		conn.Close()
		if accepted, err := l.Accept(); err != nil || !strings.HasPrefix(accepted.LocalAddr().String(), ip+":") {
			t.Errorf("%s: %v", ip, err)
		} else {
			accepted.Close()
		}
	}
	wide, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer wide.Close()
	narrow, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer narrow.Close()
	if ReachOf(wide) != Others || ReachOf(narrow) != One {
		t.Errorf("the reach of 0.0.0.0 is %v, of 127.0.0.1 %v", ReachOf(wide), ReachOf(narrow))
	}
}
