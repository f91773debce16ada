package tpm

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/google/go-tpm/tpm2"

	"holdfast/internal/keys"
)

// statusTime bounds Status for callers without a deadline.
const statusTime = 2 * time.Second

// statusLeft is the shortest time in which Status sends commands: with less, a healthy
// chip would be taken for one that does not answer.
const statusLeft = 500 * time.Millisecond

// Status asks the device for its state. It uses no session and makes no object. When
// ctx, or two seconds without a deadline, end first, or less than half a second is
// left once the device is free, it reports the known state.
func (t *TPM) Status(ctx context.Context) keys.Status {
	tries := -1
	_ = t.owning(ctx, statusTime, func(ctx context.Context) error { // the outcome is noted as a state
		if late(ctx) {
			return nil
		}
		return t.attempt(ctx, func(ctx context.Context) (err error) {
			tries, err = t.look(ctx)
			return err
		})
	})
	t.mu.Lock()
	defer t.mu.Unlock()
	s := keys.Status{
		Backend: Backend, Device: t.config.Device, Software: t.ours,
		State: t.health.state, Since: t.health.since, Reason: t.health.reason, Hint: t.health.hint,
		LockedUntil: t.health.until, Maker: t.maker, Can: t.can,
	}
	if tries >= 0 {
		s.TriesLeft = &tries
	}
	return s
}

// late reports whether too little time is left to distinguish a slow device from one
// that does not answer.
func late(ctx context.Context) bool {
	until, bounded := ctx.Deadline()
	return bounded && time.Until(until) < statusLeft
}

// look asks for the changing properties, and once for the constant ones, and returns
// how many wrong authorisations are left.
func (t *TPM) look(ctx context.Context) (tries int, err error) {
	l, err := t.sharedLink(ctx)
	if err != nil {
		return -1, err
	}
	p, err := properties(ctx, l, tpm2.TPMPTPermanent, tpm2.TPMPTLockoutRecovery)
	if err != nil {
		return -1, err
	}
	now := lockoutFrom(p)
	t.noteLockout(now)
	if err := t.learn(ctx, l); err != nil {
		return now.left(), err
	}
	return now.left(), t.stillBusy(p[tpm2.TPMPTHRTransientAvail])
}

// noteLockout enters or leaves the locked state.
func (t *TPM) noteLockout(now lockout) {
	if !now.locked {
		t.leave(keys.StateLocked)
		return
	}
	if t.state() != keys.StateLocked || t.until() == nil {
		until := time.Now().Add(now.interval)
		t.enter(health{state: keys.StateLocked, reason: "wrong authorisations locked the TPM", hint: hintLocked, until: &until})
	}
}

// until returns when the lockout is expected to end, or nil.
func (t *TPM) until() *time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.health.until
}

// stillBusy returns the last error of a full device that is still full: only a loaded
// key disproves that.
func (t *TPM) stillBusy(slots uint32) error {
	if t.state() == keys.StateBusy && slots == 0 {
		return tpm2.TPMRCObjectMemory
	}
	return nil
}

// learn asks once for the maker and the kinds of key that the device makes.
func (t *TPM) learn(ctx context.Context, l *link) error {
	if t.maker == "" {
		p, err := properties(ctx, l, tpm2.TPMPTManufacturer, tpm2.TPMPTFirmwareVersion2)
		if err != nil {
			return err
		}
		t.set(func() { t.maker = makerFrom(p) })
	}
	_, err := t.capabilities(ctx)
	return err
}

// set changes the fields that Status reads.
func (t *TPM) set(change func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change()
}

// makerFrom is the manufacturer's letters and the firmware version, which are
// four numbers by custom: "IBM 8217.4131.22.13878".
func makerFrom(p map[tpm2.TPMPT]uint32) string {
	letters := binary.BigEndian.AppendUint32(nil, p[tpm2.TPMPTManufacturer])
	name := strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, string(letters))
	v1, v2 := p[tpm2.TPMPTFirmwareVersion1], p[tpm2.TPMPTFirmwareVersion2]
	return fmt.Sprintf("%s %d.%d.%d.%d", strings.TrimSpace(name), v1>>16, v1&0xffff, v2>>16, v2&0xffff)
}

// properties reads the TPM properties from first to last.
func properties(ctx context.Context, l *link, first, last tpm2.TPMPT) (map[tpm2.TPMPT]uint32, error) {
	reply, err := tpm2.GetCapability{
		Capability: tpm2.TPMCapTPMProperties, Property: uint32(first), PropertyCount: uint32(last-first) + 1,
	}.Execute(l.on(ctx))
	if err != nil {
		return nil, step("TPM2_GetCapability", l, err)
	}
	list, err := reply.CapabilityData.Data.TPMProperties()
	if err != nil {
		return nil, step("TPM2_GetCapability", l, err)
	}
	found := make(map[tpm2.TPMPT]uint32, len(list.TPMProperty))
	for _, p := range list.TPMProperty {
		found[p.Property] = p.Value
	}
	if _, ok := found[first]; !ok {
		return nil, step("TPM2_GetCapability", l, fmt.Errorf("property %#x is missing", uint32(first)))
	}
	return found, nil
}

// Close flushes loaded keys and closes the device. It shuts a software TPM down,
// because we control its power: otherwise its next start may count a PIN key's use as
// a failed try. It does not wait for a device that hangs.
func (t *TPM) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), tidyTime)
	defer cancel()
	if err := t.acquire(ctx); err != nil {
		t.set(func() { t.closed = true })
		return nil // closed before, or hanging
	}
	t.set(func() { t.closed = true })
	for id := range t.sessions() {
		t.endSession(id)
	}
	t.sweep()
	for id := range t.loaded {
		t.unload(ctx, id)
	}
	if t.ours && t.shared != nil && !t.shared.lost {
		_, _ = tpm2.Shutdown{ShutdownType: tpm2.TPMSUClear}.Execute(t.shared.on(ctx)) // best effort: swtpm keeps running
	}
	t.shared.drop()
	<-t.owner
	return nil
}
