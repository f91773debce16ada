package pcsc

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"holdfast/test/pivcard"
)

// TestPCSC has one rig for all its parts: libpcsclite reads the path of pcscd's
// socket once.
func TestPCSC(t *testing.T) {
	rig := pivcard.Start(t, 2)
	t.Setenv("PCSCLITE_CSOCK_NAME", rig.Socket())
	card := rig.NewCard(pivcard.Options{})
	t.Run("readers", func(t *testing.T) { testReaders(t, rig, card) })
	rig.Insert(card)
	t.Run("transmit", func(t *testing.T) { testTransmit(t, rig, card) })
	t.Run("bounds", func(t *testing.T) { testBounds(t, rig, card) })
	t.Run("shared", func(t *testing.T) { testShared(t, rig, card) })
	t.Run("reset", func(t *testing.T) { testReset(t, rig, card) })
	t.Run("removed", func(t *testing.T) { testRemoved(t, rig, card) })
	t.Run("no pcscd", func(t *testing.T) { testStopped(t, rig) })
}

func testReaders(t *testing.T, rig *pivcard.Rig, card *pivcard.Card) {
	now, err := Readers()
	if err != nil || len(now) != 2 || now[0].Name != rig.Reader(0) || now[0].Present {
		t.Fatalf("%+v, %v", now, err)
	}
	began := time.Now()
	same, err := Watch(now, 200*time.Millisecond)
	if took := time.Since(began); err != nil || took < 200*time.Millisecond || len(same) != 2 {
		t.Errorf("%+v, %v after %v", same, err, took)
	}
	go rig.Insert(card)
	seen, err := Watch(now, 20*time.Second)
	if err != nil || !seen[0].Present || seen[0].Changes == now[0].Changes {
		t.Errorf("%+v, %v", seen, err)
	}
	if at, err := Watch(nil, 20*time.Second); err != nil || len(at) != 2 {
		t.Errorf("what is known is wrong, and the answer is %+v, %v", at, err)
	}
	rig.Remove(card)
}

var selectPIV = []byte{0, 0xa4, 4, 0, 5, 0xa0, 0, 0, 3, 8}

func connect(t *testing.T, rig *pivcard.Rig, card *pivcard.Card) *Card {
	t.Helper()
	c, err := Connect(rig.ReaderOf(card))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func testTransmit(t *testing.T, rig *pivcard.Rig, card *pivcard.Card) {
	c := connect(t, rig, card)
	if data, status, err := c.Transmit(selectPIV); err != nil || status != 0x9000 || len(data) == 0 {
		t.Fatalf("%x %04x %v", data, status, err)
	}
	long := bytes.Repeat([]byte{0x42}, 3000)
	card.SetObject(0x5fc101, long)
	data, status, err := c.Transmit([]byte{0, 0xcb, 0x3f, 0xff, 5, 0x5c, 3, 0x5f, 0xc1, 0x01})
	if err != nil || status != 0x9000 || !bytes.HasSuffix(data, long) {
		t.Errorf("%d bytes, %04x, %v", len(data), status, err)
	}
	if _, status, err := c.Transmit([]byte{0, 0x77, 0, 0, 0}); err != nil || status != 0x6d00 {
		t.Errorf("%04x, %v", status, err)
	}
	if _, _, err := c.Transmit([]byte{0, 0xa4}); err == nil {
		t.Error("half a command was sent")
	}
	if err := c.State(); err != nil {
		t.Error(err)
	}
}

func testBounds(t *testing.T, rig *pivcard.Rig, card *pivcard.Card) {
	c := connect(t, rig, card)
	defer card.Mend()
	card.Order(pivcard.Endless())
	if data, _, err := c.Transmit(selectPIV); err == nil {
		t.Errorf("an endless answer has %d bytes", len(data))
	}
	if n := card.Count(pivcard.GetResponse); n > maxParts+100 {
		t.Errorf("%d parts were fetched", n)
	}
	// More and more of 60 KiB each.
	card.Order(pivcard.Answer(append(bytes.Repeat([]byte{1}, 60<<10), 0x61, 0x00)).Lasting())
	if data, _, err := c.Transmit(selectPIV); err == nil {
		t.Errorf("an answer of %d bytes was taken", len(data))
	}
	card.Mend()
	card.Order(pivcard.Answer([]byte{0x90}))
	if data, status, err := c.Transmit(selectPIV); err == nil {
		t.Errorf("one byte is %x %04x", data, status)
	}
	card.Order(pivcard.Answer(append(bytes.Repeat([]byte{1}, 65_533), 0x90, 0x00)))
	if data, status, err := c.Transmit(selectPIV); err == nil && (len(data) != 65_533 || status != 0x9000) {
		t.Errorf("%d bytes, %04x", len(data), status)
	}
}

// testShared has another program connected, first idle and then in a transaction, which
// is waited for, and then alone with the card.
func testShared(t *testing.T, rig *pivcard.Rig, card *pivcard.Card) {
	reader := rig.ReaderOf(card)
	release := rig.Hold(t, reader, false)
	c := connect(t, rig, card)
	if now, err := Readers(); err != nil || !now[0].InUse {
		t.Errorf("%+v, %v", now, err)
	}
	c.Close()
	release()
	release = rig.Lock(t, reader)
	connected := make(chan error)
	go func() {
		c, err := Connect(reader)
		if err == nil {
			c.Close()
		}
		connected <- err
	}()
	select {
	case err := <-connected:
		t.Errorf("another program's transaction is cut: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	release()
	if err := <-connected; err != nil {
		t.Error(err)
	}
	release = rig.Hold(t, reader, true)
	if _, err := Connect(reader); !errors.Is(err, SharingViolation) {
		t.Errorf("another program has the card for itself: %v", err)
	}
	release()
	if now, err := Readers(); err != nil || now[0].InUse {
		t.Errorf("%+v, %v", now, err)
	}
	if _, err := Connect("none"); !errors.Is(err, UnknownReader) {
		t.Errorf("no such reader: %v", err)
	}
	if _, err := Connect(rig.Reader(1)); !errors.Is(err, NoSmartcard) {
		t.Errorf("no card: %v", err)
	}
}

func testReset(t *testing.T, rig *pivcard.Rig, card *pivcard.Card) {
	c := connect(t, rig, card)
	c.Transmit(selectPIV)
	pin := append([]byte{0, 0x20, 0, 0x80, 8}, "123456\xff\xff"...)
	if _, status, err := c.Transmit(pin); err != nil || status != 0x9000 || !card.Verified() {
		t.Fatalf("%04x, %v", status, err)
	}
	if err := c.Reset(); err != nil || card.Verified() {
		t.Errorf("%v; verified %v", err, card.Verified())
	}
}

func testRemoved(t *testing.T, rig *pivcard.Rig, card *pivcard.Card) {
	c := connect(t, rig, card)
	rig.Remove(card)
	_, _, err := c.Transmit(selectPIV)
	var code Code
	if !errors.As(err, &code) {
		t.Errorf("%v is no code", err)
	}
	if err := c.State(); !errors.Is(err, RemovedCard) {
		t.Errorf("state %v, want removed", err)
	}
}

func testStopped(t *testing.T, rig *pivcard.Rig) {
	rig.StopPCSCD()
	for name, err := range map[string]error{
		"readers": second(Readers()),
		"watch":   second(Watch(nil, time.Minute)),
		"connect": second(Connect("none")),
	} {
		if !errors.Is(err, NoService) {
			t.Errorf("%s: %v, want no service", name, err)
		}
	}
}

func second[T any](_ T, err error) error { return err }
