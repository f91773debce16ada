package tpm

import (
	"context"

	"github.com/google/go-tpm/tpm2"
)

// A device without a resource manager has few session slots, three in swtpm.
// Sessions of unlocked keys that are in the way are saved out of the device
// and loaded again on use (TPM 2.0 Part 1, section 30.4).

// parkOldest saves the least recently used session out of the device.
func (t *TPM) parkOldest(ctx context.Context) bool {
	var oldest *session
	for _, s := range t.sessions() {
		if s.parked == nil && (oldest == nil || s.used < oldest.used) {
			oldest = s
		}
	}
	if oldest == nil || t.shared == nil || t.shared.lost {
		return false
	}
	reply, err := tpm2.ContextSave{SaveHandle: oldest.handle}.Execute(t.shared.on(ctx))
	if step("TPM2_ContextSave", t.shared, err) != nil {
		return false
	}
	oldest.parked = &reply.Context
	return true
}

// unpark brings a session back that parkOldest saved.
func (t *TPM) unpark(ctx context.Context, l *link, s *session) error {
	s.used = t.clock
	if s.parked == nil {
		return nil
	}
	return t.withRoom(ctx, func() error {
		_, err := tpm2.ContextLoad{Context: *s.parked}.Execute(l.on(ctx))
		if err == nil {
			s.parked = nil
		}
		return step("TPM2_ContextLoad", l, err)
	})
}
