package ticket

import "time"

// arm sets the timer to the time at which the next ticket expires or the next sweep
// is due. The caller holds the lock.
func (t *Table) arm(now time.Time) {
	if len(t.holders) == 0 {
		if t.timer != nil {
			t.timer.Stop()
		}
		return
	}
	wait := sweepEvery
	for _, h := range t.holders {
		wait = min(wait, h.expires.Sub(now)+time.Millisecond)
	}
	if t.timer == nil {
		t.timer = time.AfterFunc(wait, t.tick)
		return
	}
	t.timer.Reset(wait)
}

// tick runs a sweep.
func (t *Table) tick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sweep(time.Now())
}

// sweep forgets tickets that have expired and those of processes that have ended.
// The caller holds the lock.
func (t *Table) sweep(now time.Time) {
	gone := t.ended()
	t.forget(func(h *Holder) bool { return h.expired(now) || gone[h.process] })
}

// ended returns the processes that have ended. Only the table closes pidfds, and
// only under its lock, which the caller holds, so each number still belongs to its
// process.
func (t *Table) ended() map[*process]bool {
	var processes []*process
	var pidfds []int
	for _, p := range t.processes {
		processes, pidfds = append(processes, p), append(pidfds, p.pidfd)
	}
	dead, err := ended(pidfds)
	if err != nil {
		return nil // it costs memory only: every use of a ticket checks again
	}
	gone := map[*process]bool{}
	for i, p := range processes {
		gone[p] = dead[i]
	}
	return gone
}

// forget drops tickets, and each process with its last one. The caller holds
// the lock.
func (t *Table) forget(which func(*Holder) bool) {
	for hash, h := range t.holders {
		if !which(h) {
			continue
		}
		h.forgotten.Store(true)
		delete(t.holders, hash)
		delete(h.process.holders, h)
		if len(h.process.holders) == 0 {
			delete(t.processes, h.process.PID)
			h.process.close()
		}
	}
	t.arm(time.Now())
}

// drop forgets a process. The caller holds the lock.
func (t *Table) drop(p *process) { t.forget(func(h *Holder) bool { return h.process == p }) }
