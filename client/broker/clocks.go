package broker

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// clockInterval is how often the clocks are compared: connections from before a
// suspend are cut at most so long after it.
const clockInterval = 2 * time.Second

// minSuspend is the shortest suspend that counts. The two clocks are not read at the
// same instant, and this process may have to wait in between.
const minSuspend = time.Second

// systemClocks returns the time since the boot, and that part of it during which
// the machine was not suspended (clock_gettime(2)).
func systemClocks() (boot, up time.Duration) {
	var b, m unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &b) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &m) != nil {
		return 0, 0
	}
	return time.Duration(b.Nano()), time.Duration(m.Nano())
}

// watchClocks cuts every connection when the machine was suspended: another person
// may have woken it. It needs no bus.
func (b *Broker) watchClocks(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	boot, up := b.Clocks()
	asleep := boot - up
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		boot, up := b.Clocks()
		slept := boot - up - asleep
		asleep = boot - up
		if slept >= minSuspend {
			b.Log.Info("the machine slept: connections are cut", "slept", slept.Round(time.Second))
			b.issued.pools.Drop("")
		}
	}
}
