package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
	"holdfast/test/daemon"
	"holdfast/test/pivcard"
)

func TestReaders(t *testing.T) {
	t.Parallel()
	rig := pivcard.Start(t, 2)
	card := rig.NewCard(pivcard.Options{Serial: 4711})
	c := start(t, rig)
	empty := c.must(wire.Request{Op: wire.Readers}).Readers
	if len(empty) != 2 || empty[0].Name != rig.Reader(0) || empty[0].Present || empty[1].Present {
		t.Fatalf("readers %+v", empty)
	}
	began := time.Now()
	same := c.must(wire.Request{Op: wire.Readers, Known: empty, Wait: 300 * time.Millisecond}).Readers
	if took := time.Since(began); took < 300*time.Millisecond || len(same) != 2 {
		t.Errorf("without a change it took %v", took)
	}
	id := c.send(wire.Request{Op: wire.Readers, Known: empty, Wait: time.Minute})
	rig.Insert(card)
	reply := c.answer()
	if reply.ID != id || len(reply.Readers) != 2 || !reply.Readers[0].Present || reply.Readers[0].Changes == empty[0].Changes {
		t.Fatalf("%+v", reply)
	}
	who := c.must(wire.Request{Op: wire.Identify, Reader: rig.Reader(0), Serial: 1})
	if who.Serial != 4711 || who.Firmware != "5.4.3" {
		t.Errorf("%+v", who)
	}
	c.fails(wire.Request{Op: wire.Identify, Reader: rig.Reader(1)}, fault.DeviceAbsent)
	c.fails(wire.Request{Op: wire.Identify, Reader: "none"}, fault.DeviceAbsent)
	id = c.send(wire.Request{Op: wire.Readers, Known: reply.Readers, Wait: time.Minute})
	release := rig.Hold(t, rig.Reader(0), false)
	release()
	rig.Remove(card)
	if reply = c.answer(); reply.ID != id || reply.Readers[0].Present {
		t.Errorf("a program came and went, and then the card: %+v", reply)
	}
}

// TestOldSerial has a key that tells its serial number in another application.
func TestOldSerial(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{Serial: 815, Firmware: pivcard.Firmware{4, 3, 5}})
	if got := d.must(d.on(wire.Identify)); got.Serial != 815 || got.Firmware != "4.3.5" {
		t.Errorf("%+v", got)
	}
}

// TestMemory reads the child's memory as its own user would. Root may read it in
// any case; what counts is who the kernel says that it belongs to.
func TestMemory(t *testing.T) {
	t.Parallel()
	k := unlocked(t, keys.PolicyNever, pivcard.Options{})
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", k.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	lines := string(status)
	for _, want := range []string{"NoNewPrivs:\t1", "Seccomp:\t2", "VmLck:\t       4 kB"} {
		if !strings.Contains(lines, want) {
			t.Errorf("no %q in\n%s", want, lines)
		}
	}
	attempt := exec.Command("cat", fmt.Sprintf("/proc/%d/environ", k.cmd.Process.Pid))
	attempt.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65533, Gid: 65533}}
	own := k.asUser(65533)
	attempt.Args[1] = fmt.Sprintf("/proc/%d/environ", own.cmd.Process.Pid)
	if text, err := attempt.CombinedOutput(); err == nil || !strings.Contains(string(text), "ermission denied") {
		t.Errorf("another program of the same user reads it: %v %q", err, text)
	}
}

// asUser starts another child as another user.
func (d *desk) asUser(uid uint32) *child {
	d.t.Helper()
	c := &child{t: d.t, cmd: exec.Command(daemon.Program(d.t, daemon.PIVProgram)), got: make(chan *wire.Reply, 8), done: make(chan struct{})}
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	c.cmd.Dir = "/"
	c.launch(d.rig)
	c.must(wire.Request{Op: wire.Lock}) // it is up
	return c
}

func TestProtocol(t *testing.T) {
	t.Parallel()
	rig := pivcard.Start(t, 2)
	for name, raw := range map[string][]byte{
		"not JSON":       frame("hello"),
		"unknown member": frame(`{"id":1,"op":"readers","please":true}`),
		"too long":       {0xff, 0xff, 0xff, 0xff},
		"cut off":        {0, 0, 0, 9, '{'},
		"two at a time":  append(frame(`{"id":1,"op":"readers","known":[],"wait":60000000000}`), frame(`{"id":2,"op":"readers"}`)...),
	} {
		c := start(t, rig)
		if name == "two at a time" {
			known := c.must(wire.Request{Op: wire.Readers}).Readers
			c.send(wire.Request{Op: wire.Readers, Known: known, Wait: time.Minute})
			c.send(wire.Request{Op: wire.Readers})
		} else if _, err := c.in.Write(raw); err != nil {
			t.Fatal(err)
		}
		if name == "cut off" {
			c.in.Close()
		}
		if code := c.ended(); code != 1 {
			t.Errorf("%s: exit code %d, want 1", name, code)
		}
	}
	c := start(t, rig)
	c.fails(wire.Request{Op: "dance", Reader: rig.Reader(0)}, fault.BadRequest)
	c.end()
}

func frame(body string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// TestEndWhileWatching ends the input while nothing happens to the readers.
func TestEndWhileWatching(t *testing.T) {
	t.Parallel()
	rig := pivcard.Start(t, 2)
	c := start(t, rig)
	known := c.must(wire.Request{Op: wire.Readers}).Readers
	c.send(wire.Request{Op: wire.Readers, Known: known, Wait: time.Minute})
	c.must(wire.Request{Op: wire.Lock})
	c.end()
}

func TestArguments(t *testing.T) {
	program := daemon.Program(t, daemon.PIVProgram)
	out, err := exec.Command(program, "--version").Output()
	if err != nil || !strings.Contains(string(out), "go1.") {
		t.Errorf("--version: %q, %v", out, err)
	}
	text, err := exec.Command(program, "--pin", "123456").CombinedOutput()
	if err == nil || !strings.Contains(string(text), "holdfast-piv: hint: ") || strings.Contains(string(text), "123456") {
		t.Errorf("an argument: %q, %v", text, err)
	}
}
