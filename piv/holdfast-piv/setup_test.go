package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"holdfast/internal/fault"
	"holdfast/internal/keys"
	"holdfast/piv/wire"
	"holdfast/test/pace"
	"holdfast/test/pivcard"
)

// fresh starts a rig with a card as it leaves the factory.
func fresh(t *testing.T, f pivcard.Firmware) *desk {
	return setUp(t, pivcard.Options{Firmware: f, PIN: "123456"})
}

func (d *desk) settingUp() wire.Request {
	r := d.on(wire.SetUp)
	r.PIN, r.PUK = []byte(ownPIN), []byte(ownPUK)
	return r
}

// generating asks for a key with nothing but the PIN.
func (d *desk) generating(slot string) wire.Request {
	r := d.on(wire.Generate)
	r.Slot, r.Algorithm, r.PINPolicy, r.TouchPolicy, r.PIN = slot, "ES256", keys.PolicyOnce, keys.PolicyNever, []byte(ownPIN)
	r.Overwrite = !d.card.Firmware.AtLeast(pivcard.Firmware{5, 3, 0}) // or it could be full, unseen
	return r
}

// isSetUp expects PIN and PUK to be the new ones and the management key to be
// kept where the PIN opens it.
func (d *desk) isSetUp() {
	d.t.Helper()
	r := d.generating("9a")
	r.Overwrite = true
	d.must(r)
	puk := d.on(wire.ChangePUK)
	puk.Old, puk.New = []byte(ownPUK), []byte("99999999")
	d.must(puk)
	puk.Old, puk.New = puk.New, puk.Old
	d.must(puk)
	if object := d.card.Object(0x5fff00); !bytes.Equal(object, []byte{0x80, 3, 0x81, 1, 2}) {
		d.t.Errorf("the card says %x of its management key", object)
	}
}

func TestSetUp(t *testing.T) {
	for _, f := range []pivcard.Firmware{{4, 3, 5}, {5, 2, 4}, {5, 3, 1}, {5, 4, 3}, {5, 7, 1}} {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			d := fresh(t, f)
			d.must(d.settingUp())
			d.isSetUp()
			d.again()
			r := d.settingUp() // and once more, of a card that has everything
			r.Old, r.OldPUK, r.PUK = []byte(ownPIN), []byte(ownPUK), []byte(ownPUK)
			d.must(r)
			d.isSetUp()
			if left := d.card.PINLeft(); left != 3 {
				t.Errorf("%d tries are left, want 3", left)
			}
		})
	}
}

// TestSetUpWithoutFlag: a card of another maker stores the management key behind its PIN,
// and not the flag by which ykman knows of it.
func TestSetUpWithoutFlag(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{PIN: "123456", Lacks: []uint32{0x5fff00}})
	again := d.settingUp()
	again.Old, again.OldPUK = []byte(ownPIN), []byte(ownPUK)
	for _, setUp := range []wire.Request{d.settingUp(), again} {
		d.must(setUp)
		r := d.generating("9a")
		r.Overwrite = true
		d.must(r)
	}
	if left := d.card.PUKLeft(); left != 3 {
		t.Errorf("%d tries of the PUK are left, want 3", left)
	}
}

// TestSetUpUndone: a card that cannot store its management key, or refuses a new one, is as
// before: no key stays on it that is not in force.
func TestSetUpUndone(t *testing.T) {
	for name, flaw := range map[string]pivcard.Fault{
		"not stored":       pivcard.Status(0x6a82).At(pivcard.PutData),
		"stored otherwise": pivcard.Answer([]byte{0x53, 2, 1, 2, 0x90, 0}).At(pivcard.GetData).Nth(3),
		"not switched":     pivcard.Status(0x6a80).At(pivcard.SetManagementKey),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := fresh(t, pivcard.Firmware{})
			d.card.Order(flaw)
			d.fails(d.settingUp(), fault.Unsupported)
			if d.card.Object(0x5fc109) != nil || d.card.Object(0x5fff00) != nil {
				t.Errorf("the card keeps %x", d.card.Object(0x5fc109))
			}
			d.card.Mend()
			d.must(d.settingUp())
			d.isSetUp()
		})
	}
}

func TestSetUpOfAnOwnersCard(t *testing.T) {
	t.Parallel()
	d := setUp(t, pivcard.Options{})
	e := d.fails(d.settingUp(), fault.PINRequired)
	if !e.Unsent || d.card.PINTries() != 0 {
		t.Errorf("%+v after %d PINs; a card with a PIN of its own is not guessed at", e, d.card.PINTries())
	}
	r := d.settingUp()
	r.Old, r.OldPUK = []byte(ownPIN), []byte(ownPUK)
	d.fails(r, fault.BadRequest) // the management key is unknown
	r.ManagementKey, r.PIN = ownManage, []byte("271828")
	d.must(r)
	r = d.generating("9a")
	r.PIN = []byte("271828")
	d.must(r)
}

// TestSetUpOfAES has cards whose management key is of another kind.
func TestSetUpOfAES(t *testing.T) {
	for _, size := range []int{16, 32} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			t.Parallel()
			key := bytes.Repeat([]byte{0x42}, size)
			d := setUp(t, pivcard.Options{PIN: "123456", Manage: key})
			r := d.settingUp()
			d.fails(r, fault.BadRequest)
			r.PIN, r.PUK, r.ManagementKey = []byte(ownPIN), []byte(ownPUK), key
			d.must(r)
			d.isSetUp()
		})
	}
}

func TestSetUpRefuses(t *testing.T) {
	t.Parallel()
	d := fresh(t, pivcard.Firmware{})
	for pin, puk := range map[string]string{"123456": ownPUK, ownPIN: "12345678", "12345": ownPUK, "314 59": ownPUK} {
		r := d.settingUp()
		r.PIN, r.PUK = []byte(pin), []byte(puk)
		d.fails(r, fault.BadRequest)
	}
	r := d.settingUp()
	r.Old = []byte("123456789") // which would be right if it were cut
	d.fails(r, fault.BadRequest)
	r = d.settingUp()
	r.OldPUK = []byte("12345678 ")
	d.fails(r, fault.BadRequest)
	d.sent(0)
	d.card.SetObject(0x5fc109, []byte{0x01, 3, 'E', 'v', 'e'})
	d.fails(d.settingUp(), fault.Unsupported)
	if got := d.card.Object(0x5fc109); len(got) != 5 {
		t.Errorf("the printed information is %x now", got)
	}
}

// TestSetUpCutOff cuts a set-up off at one command after the other and asks for it
// again. In one
// half the process is killed and the card still does what it was told last; in the
// other the card is pulled out first.
func TestSetUpCutOff(t *testing.T) {
	for _, c := range []struct {
		name     string
		firmware pivcard.Firmware
		cut      func(d *desk, r wire.Request, n int) bool
		step     int
	}{
		{"killed", pivcard.Firmware{5, 4, 3}, killAt, pace.Share(4, 1)},
		{"killed, old", pivcard.Firmware{4, 3, 5}, killAt, pace.Share(4, 1)},
		{"pulled", pivcard.Firmware{5, 4, 3}, pullAt, pace.Share(7, 3)}, // pcscd takes a second to notice that a card has gone
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			everywhere(fresh(t, c.firmware), c.cut, c.step)
		})
	}
}

func everywhere(d *desk, cut func(*desk, wire.Request, int) bool, step int) {
	for n := 1; ; n += step {
		d.end() // and not killed: pcscd resets a card whose user has died, and must not do so while another is put in
		d.rig.Remove(d.card)
		d.card = d.rig.NewCard(pivcard.Options{Firmware: d.card.Firmware})
		d.rig.Insert(d.card)
		d.child = start(d.t, d.rig)
		if !cut(d, d.settingUp(), n) {
			if n < 20 {
				d.t.Errorf("only %d commands were cut off", n)
			}
			return
		}
		d.again()
		if reply := d.whenFree(d.settingUp); reply.Error != nil {
			d.t.Fatalf("after command %d was cut off: %+v", n, *reply.Error)
		}
		d.isSetUp()
	}
}

// whenFree makes a request, again while pcscd has not yet taken the card from a child
// that was killed.
func (d *desk) whenFree(request func() wire.Request) *wire.Reply {
	for until := time.Now().Add(testTimeout); ; {
		reply := d.do(request())
		if reply.Error == nil || reply.Error.Kind != fault.Busy || time.Now().After(until) {
			return reply
		}
	}
}

// killAt kills the child while the card has its n-th command, which the card then
// carries out. It reports false when there are not so many.
func killAt(d *desk, r wire.Request, n int) bool {
	d.card.Order(pivcard.Hang().Nth(n))
	d.send(r)
	var reply *wire.Reply
	d.await("the command or the end", func() bool {
		select {
		case reply = <-d.got:
		default:
		}
		return reply != nil || len(d.card.Commands()) == n
	})
	if reply != nil && reply.Error != nil {
		d.t.Fatalf("before command %d: %+v", n, *reply.Error)
	}
	d.kill()
	d.card.Mend()
	return reply == nil
}

// pullAt pulls the card out before it carries out its n-th command.
func pullAt(d *desk, r wire.Request, n int) bool {
	watcher := start(d.t, d.rig)
	defer watcher.end()
	before := d.changes(watcher)
	d.card.Order(pivcard.Removed().Nth(n))
	if reply := d.do(r); reply.Error == nil {
		return false
	}
	d.card.Mend()
	// A card that is put in before pcscd has looked is not noticed.
	d.await("pcscd to notice", func() bool { return d.changes(watcher) != before })
	d.rig.Insert(d.card)
	return true
}

// changes returns how often cards came and went in the desk's first reader.
func (d *desk) changes(watcher *child) uint32 {
	d.t.Helper()
	return watcher.must(wire.Request{Op: wire.Readers}).Readers[0].Changes
}

// TestSetUpAgainCutOff is the same for a card whose management key is kept nowhere
// but on the card already.
func TestSetUpAgainCutOff(t *testing.T) {
	t.Parallel()
	d := fresh(t, pivcard.Firmware{})
	d.must(d.settingUp())
	again := func() wire.Request {
		r := d.settingUp()
		r.Old, r.OldPUK = []byte(ownPIN), []byte(ownPUK)
		return r
	}
	n := 1
	for ; ; n++ {
		d.end()
		d.child = start(t, d.rig)
		d.card.Forget()
		if !killAt(d, again(), n) {
			break
		}
		d.child = start(t, d.rig)
		if reply := d.whenFree(again); reply.Error != nil {
			t.Fatalf("after command %d was cut off: %+v", n, *reply.Error)
		}
		d.isSetUp()
	}
	if n < 20 {
		t.Errorf("only %d commands were cut off", n)
	}
}

// TestYubicoTool has Yubico's own tool find the management key after a set-up, with
// nothing but the PIN, and use it. The tool gives an object in hexadecimal.
func TestYubicoTool(t *testing.T) {
	t.Parallel()
	d := fresh(t, pivcard.Firmware{})
	d.must(d.settingUp())
	d.kill()
	printed := d.yubico("-a", "verify-pin", "-P", ownPIN, "-a", "read-object", "--id", "0x5fc109", "-f", "hex")
	found := regexp.MustCompile(`(?m)881a8918([0-9a-f]{48})$`).FindSubmatch(printed)
	if found == nil {
		t.Fatalf("the object is %s", printed)
	}
	if text := d.yubico("-k"+string(found[1]), "-a", "generate", "-s", "9a", "-A", "ECCP256"); !bytes.Contains(text, []byte("PUBLIC KEY")) {
		t.Errorf("no key was made: %s", text)
	}
}

// yubico runs the tool, again while pcscd has not yet taken the card from a child
// that has ended.
func (d *desk) yubico(args ...string) []byte {
	d.t.Helper()
	for until := time.Now().Add(testTimeout); ; {
		cmd := exec.Command("yubico-piv-tool", append([]string{"-r", ""}, args...)...)
		cmd.Env = append(os.Environ(), d.rig.Env()...)
		text, err := cmd.CombinedOutput()
		if err == nil {
			return text
		}
		if !bytes.Contains(text, []byte("Failed to connect")) || time.Now().After(until) {
			d.t.Fatalf("yubico-piv-tool: %v: %s", err, text)
		}
	}
}
