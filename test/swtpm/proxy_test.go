package swtpm_test

import (
	"bytes"
	"errors"
	"maps"
	"testing"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/test/pace"
	"holdfast/test/swtpm"
)

func proxy(t *testing.T, o swtpm.Options) (*swtpm.TPM, *swtpm.Proxy) {
	t.Helper()
	tpm := swtpm.Start(t)
	return tpm, swtpm.NewProxy(t, tpm, o)
}

func dialProxy(t *testing.T, p *swtpm.Proxy) *swtpm.Conn {
	t.Helper()
	c, err := p.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func random(c *swtpm.Conn) error {
	_, err := tpm2.GetRandom{BytesRequested: 4}.Execute(c)
	return err
}

func TestProxyCounts(t *testing.T) {
	_, p := proxy(t, swtpm.Options{})
	c := dialProxy(t, p)
	for range 3 {
		if err := random(c); err != nil {
			t.Fatal(err)
		}
	}
	primary(t, c)
	want := map[tpm2.TPMCC]int{tpm2.TPMCCGetRandom: 3, tpm2.TPMCCCreatePrimary: 1}
	if got := p.Counts(); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	p.ResetCounts()
	if got := p.Total(); got != 0 {
		t.Errorf("after ResetCounts: got %d, want 0", got)
	}
}

func TestProxyServesManyConnections(t *testing.T) {
	_, p := proxy(t, swtpm.Options{})
	for range 8 { // all open at once
		if err := random(dialProxy(t, p)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestProxyDelays(t *testing.T) {
	_, p := proxy(t, swtpm.Options{Delay: map[tpm2.TPMCC]time.Duration{tpm2.TPMCCGetRandom: 200 * time.Millisecond}})
	c := dialProxy(t, p)
	start := time.Now()
	if err := random(c); err != nil || time.Since(start) < 200*time.Millisecond {
		t.Errorf("got %v after %v, want success after 200 ms", err, time.Since(start))
	}
	p.SetDelay(tpm2.TPMCCGetRandom, 0)
	start = time.Now()
	if err := random(c); err != nil || pace.Over(t, time.Since(start), 190*time.Millisecond) {
		t.Errorf("without delay: got %v after %v", err, time.Since(start))
	}
}

func TestProxyDrops(t *testing.T) {
	for _, test := range []struct {
		name string
		fate swtpm.Fate
		done int // commands that the TPM has seen
	}{
		{"before", swtpm.DropBefore, 2},
		{"after", swtpm.DropAfter, 3},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, p := proxy(t, swtpm.Options{Script: swtpm.At(2, test.fate)})
			c := dialProxy(t, p)
			for range 2 {
				if err := random(c); err != nil {
					t.Fatal(err)
				}
			}
			if err := random(c); err == nil {
				t.Error("the third command was answered")
			}
			if got := p.Total(); got != test.done {
				t.Errorf("commands that reached the TPM: got %d, want %d", got, test.done)
			}
			if err := random(dialProxy(t, p)); err != nil {
				t.Errorf("a new connection: %v", err)
			}
			if got := p.Seen(); got != 4 {
				t.Errorf("Seen: got %d, want 4", got)
			}
		})
	}
}

func TestProxyScriptedCodes(t *testing.T) {
	_, p := proxy(t, swtpm.Options{Script: swtpm.First(2, tpm2.TPMCCGetRandom, swtpm.Fate(tpm2.TPMRCYielded))})
	c := dialProxy(t, p)
	for range 2 {
		if err := random(c); !errors.Is(err, tpm2.TPMRCYielded) {
			t.Errorf("got %v, want TPM_RC_YIELDED", err)
		}
	}
	if err := random(c); err != nil {
		t.Errorf("the third: got %v, want success", err)
	}
	p.SetScript(swtpm.Always(tpm2.TPMCCGetRandom, swtpm.Fate(tpm2.TPMRCYielded)))
	for range 5 {
		if err := random(c); !errors.Is(err, tpm2.TPMRCYielded) {
			t.Errorf("always: got %v, want TPM_RC_YIELDED", err)
		}
	}
	primary(t, c) // another command is none of its business
}

func TestProxyMutates(t *testing.T) {
	_, p := proxy(t, swtpm.Options{})
	c := dialProxy(t, p)
	p.SetMutation(func(cc tpm2.TPMCC, reply []byte) []byte {
		if cc == tpm2.TPMCCGetRandom {
			clear(reply[12:])
		}
		return reply
	})
	rsp, err := tpm2.GetRandom{BytesRequested: 16}.Execute(c)
	if err != nil || !bytes.Equal(rsp.RandomBytes.Buffer, make([]byte, 16)) {
		t.Errorf("got %v, %v, want the zeros that were put there", rsp, err)
	}
	p.SetMutation(nil)
	rsp, err = tpm2.GetRandom{BytesRequested: 16}.Execute(c)
	if err != nil || bytes.Equal(rsp.RandomBytes.Buffer, make([]byte, 16)) {
		t.Errorf("without mutation: got %v, %v", rsp, err)
	}
}

func TestProxyRecords(t *testing.T) {
	_, p := proxy(t, swtpm.Options{Record: true})
	c := dialProxy(t, p)
	secret := []byte("not a secret at all")
	_, err := tpm2.Hash{
		Data: tpm2.TPM2BMaxBuffer{Buffer: secret}, HashAlg: tpm2.TPMAlgSHA256, Hierarchy: tpm2.TPMRHNull,
	}.Execute(c)
	if err != nil {
		t.Fatal(err)
	}
	rsp, err := tpm2.GetRandom{BytesRequested: 16}.Execute(c)
	if err != nil {
		t.Fatal(err)
	}
	tape := p.Recorded()
	if !bytes.Contains(tape, secret) || !bytes.Contains(tape, rsp.RandomBytes.Buffer) {
		t.Error("what was sent and what came back is not on the tape")
	}
}

func TestProxyFollowsTheTPM(t *testing.T) {
	tpm, p := proxy(t, swtpm.Options{})
	c := dialProxy(t, p)
	if err := random(c); err != nil {
		t.Fatal(err)
	}
	tpm.Restart()
	if err := random(c); err == nil {
		t.Error("a connection to the TPM that was killed: still answered")
	}
	if err := random(dialProxy(t, p)); err != nil {
		t.Errorf("a new connection after the restart: %v", err)
	}
}

func TestProxyEndsWhileTheTPMIsStopped(t *testing.T) {
	tpm, p := proxy(t, swtpm.Options{})
	c := dialProxy(t, p)
	if err := random(c); err != nil {
		t.Fatal(err)
	}
	tpm.Stop()
	answered := make(chan error, 1)
	go func() { answered <- random(c) }()
	wait(t, "the command", func() bool { return p.Seen() == 2 })
	p.Close()
	if err := <-answered; err == nil {
		t.Error("a stopped TPM has answered")
	}
}
