package pivcard

import (
	"fmt"
	"sync"
)

// Hold opens the card in a reader as another program would that keeps it:
// shared, as gpg's scdaemon does with pcsc-shared, or exclusively, as without
// it: no other program then gets the card, until release. It needs a card in the
// reader.
func (r *Rig) Hold(tb TB, reader string, exclusive bool) (release func()) {
	tb.Helper()
	share := uint32(shareShared)
	if exclusive {
		share = shareExclusive
	}
	c, err := r.open(reader, share)
	if err != nil {
		tb.Fatalf("pivcard: hold %s: %v", reader, err)
		return func() {}
	}
	release = sync.OnceFunc(c.close)
	tb.Cleanup(release)
	return release
}

// Lock is Hold with a transaction: whoever shares the card waits at its next
// command until release.
func (r *Rig) Lock(tb TB, reader string) (release func()) {
	tb.Helper()
	c, err := r.open(reader, shareShared)
	if err == nil {
		err = c.begin()
	}
	if err != nil {
		tb.Fatalf("pivcard: lock %s: %v", reader, err)
		return func() {}
	}
	release = sync.OnceFunc(c.close)
	tb.Cleanup(release)
	return release
}

func (r *Rig) open(reader string, share uint32) (*pcscClient, error) {
	c, err := dialPCSC(r.Socket())
	if err != nil {
		return nil, err
	}
	if err := c.connect(reader, share); err != nil {
		c.close()
		return nil, fmt.Errorf("connect: %w", err)
	}
	return c, nil
}
