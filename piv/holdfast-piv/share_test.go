package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
	"holdfast/test/pace"
	"holdfast/test/pivcard"
)

// A program is another program that has the card open.
type program struct {
	t   *testing.T
	in  io.WriteCloser
	out *bufio.Scanner
	cmd *exec.Cmd
}

// run starts a program with the desk's pcscd. It is killed when the test ends.
func (d *desk) run(t *testing.T, env []string, line ...string) *program {
	t.Helper()
	p := &program{t: t, cmd: exec.Command(line[0], line[1:]...)}
	p.cmd.Env, p.cmd.Stderr = append(append(os.Environ(), d.rig.Env()...), env...), os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	t.Cleanup(func() { p.cmd.Process.Kill(); p.cmd.Wait() })
	return p
}

// line returns the program's next line.
func (p *program) line() string {
	p.t.Helper()
	if !p.out.Scan() {
		p.t.Fatalf("%v has ended", p.cmd.Args)
	}
	return p.out.Text()
}

// say sends the program a line and returns its answer, whose last line begins with OK or
// ERR.
func (p *program) say(line string) string {
	p.t.Helper()
	if _, err := fmt.Fprintln(p.in, line); err != nil {
		p.t.Fatal(err)
	}
	for answer := ""; ; {
		answer = p.line()
		if strings.HasPrefix(answer, "OK") || strings.HasPrefix(answer, "ERR") {
			return answer
		}
	}
}

// holder starts python3-pyscard on the desk's card: see testdata/holder.py.
func (d *desk) holder(t *testing.T, mode string) *program {
	t.Helper()
	p := d.run(t, nil, "/usr/bin/python3", "testdata/holder.py", mode, d.rig.ReaderOf(d.card))
	if line := p.line(); line != "holds" {
		t.Fatal(line)
	}
	return p
}

// TestSharedCard has other programs keep the card open while the child works with it.
func TestSharedCard(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	d.holder(t, "idle")
	d.holder(t, "idle")
	d.must(d.on(wire.Identify))
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	d.must(k.unlocking(ownPIN))
	for range 3 {
		d.await("the card to forget", func() bool { return !d.card.Verified() })
		k.signs()
	}
	d.sent(4)
}

// TestNothingStaysProved: a program that shares the card, and is the next to have it, never
// finds a PIN or the management key proved, neither after the requests of a burst nor after
// the child was killed.
func TestNothingStaysProved(t *testing.T) {
	for name, onlyPIV := range map[string]bool{"another application": false, "reset": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := setUp(t, pivcard.Options{OnlyPIV: onlyPIV})
			other := d.holder(t, "ask")
			k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
			unlock := func() { d.must(k.unlocking(ownPIN)) }
			for step, work := range map[string]func(){
				"key":    func() { d.key("9c", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever) },
				"unlock": unlock,
				"sign":   func() { unlock(); k.signs() },
				"lock":   func() { unlock(); d.must(wire.Request{Op: wire.Lock}) },
				"kill":   func() { unlock(); d.kill(); d.child = start(t, d.rig) },
				"end":    func() { unlock(); d.end(); d.child = start(t, d.rig) },
			} {
				work()
				fmt.Fprintln(other.in)
				if found := other.line(); found != "nothing" {
					t.Errorf("after %s another program finds: %s", step, found)
				}
			}
		})
	}
}

// TestForeignTransaction: another program's transaction is waited for. A longer one is
// reported as such, and costs no unlocked key its PIN.
func TestForeignTransaction(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	d.must(k.unlocking(ownPIN))
	d.released()
	holder := d.holder(t, "transaction")
	for _, op := range []wire.Request{k.signing(), d.on(wire.Inspect), d.on(wire.Identify)} {
		op.Wait = 300 * time.Millisecond
		began := time.Now()
		e := d.fails(op, fault.Busy)
		if took := time.Since(began); took < op.Wait || pace.Over(t, took, 2*time.Second) || e.RetryAfterMS == 0 || !e.Unsent {
			t.Errorf("%s: %+v after %v", op.Op, e, took)
		}
	}
	id := d.send(k.signing())
	holder.in.Close()
	reply := d.answer()
	if reply.ID != id || reply.Error != nil {
		t.Fatalf("after the end of the transaction: %+v", reply.Error)
	}
	if err := k.verify(k.signing(), reply); err != nil {
		t.Error(err)
	}
	d.sent(2)
	holder = d.holder(t, "transaction")
	late := k.signing()
	late.Wait = time.Millisecond
	d.fails(late, fault.Busy)
	holder.in.Close()
	d.await("a connection that no request waits for to be closed", d.free)
}

// certify puts a certificate into the key's slot, without which OpenSC shows no key.
func (m *made) certify(t *testing.T) {
	r := m.on(wire.Certificate)
	r.Certificate, r.ManagementKey = certificateFor(t, m.public), ownManage
	m.must(r)
}

// opensc is OpenSC's PKCS #11 module.
const opensc = "/usr/lib/x86_64-linux-gnu/opensc-pkcs11.so"

// TestOpenSC has ssh-agent keep the card with OpenSC all day: both sign in turns.
func TestOpenSC(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
	k.certify(t)
	d.must(k.unlocking(ownPIN))
	var alone time.Duration
	for range 3 {
		d.released()
		began := time.Now()
		k.signs()
		alone = max(alone, time.Since(began))
	}
	d.must(wire.Request{Op: wire.Lock})
	d.released()
	dir := t.TempDir()
	askpass := filepath.Join(dir, "askpass")
	if err := os.WriteFile(askpass, []byte("#!/bin/sh\necho "+ownPIN+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	env := []string{"SSH_AUTH_SOCK=" + filepath.Join(dir, "agent"), "SSH_ASKPASS=" + askpass, "SSH_ASKPASS_REQUIRE=force", "DISPLAY=:0"}
	agent := d.run(t, nil, "ssh-agent", "-D", "-a", filepath.Join(dir, "agent"))
	agent.line()
	add := func(args ...string) string {
		cmd := exec.Command("ssh-add", args...)
		cmd.Env = append(append(os.Environ(), d.rig.Env()...), env...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("ssh-add %v: %v: %s", args, err, out)
		}
		return string(out)
	}
	add("-s", opensc)
	public := filepath.Join(dir, "key.pub")
	if err := os.WriteFile(public, []byte(add("-L")), 0o600); err != nil {
		t.Fatal(err)
	}
	if !d.inUse() {
		t.Fatal("ssh-agent has not kept the card")
	}
	d.must(k.unlocking(ownPIN))
	var beside []time.Duration
	for range 5 {
		add("-T", public)
		began := time.Now()
		k.signs()
		beside = append(beside, time.Since(began))
	}
	slices.Sort(beside)
	t.Logf("a signature takes %v beside ssh-agent, and %v alone", beside, alone)
	if pace.Over(t, beside[2]-alone, 50*time.Millisecond) {
		t.Errorf("a signature takes %v beside ssh-agent, and %v alone", beside, alone)
	}
}

// TestSCDaemon has gpg's card daemon keep the card, alone and with pcsc-shared.
func TestSCDaemon(t *testing.T) {
	for options, shared := range map[string]bool{"disable-ccid\n": false, "disable-ccid\npcsc-shared\n": true} {
		t.Run(strings.Join(strings.Fields(options), " "), func(t *testing.T) {
			t.Parallel()
			d := setUp(t, pivcard.Options{})
			k := d.key("9a", keys.ES256, 0, keys.PolicyOnce, keys.PolicyNever)
			d.must(k.unlocking(ownPIN))
			d.released()
			home := t.TempDir()
			if err := os.WriteFile(filepath.Join(home, "scdaemon.conf"), []byte(options), 0o600); err != nil {
				t.Fatal(err)
			}
			daemon := d.run(t, nil, "/usr/lib/gnupg/scdaemon", "--homedir", home, "--server")
			daemon.line()
			if answer := daemon.say("SERIALNO undefined"); !strings.HasPrefix(answer, "OK") {
				t.Fatal(answer)
			}
			d.await("scdaemon to have the card", d.inUse)
			if shared {
				for range 3 {
					k.signs()
					d.await("the card to forget", func() bool { return !d.card.Verified() })
				}
				return
			}
			for _, r := range []wire.Request{d.on(wire.Identify), k.signing()} {
				if e := d.fails(r, fault.Busy); !strings.Contains(e.Message, "scdaemon") || e.Next.Do != fault.ShareCard {
					t.Errorf("%+v", e)
				}
			}
			daemon.say("RESTART")
			daemon.in.Close()
			d.await("scdaemon to let go", d.free)
			k.signs() // still unlocked
		})
	}
}
