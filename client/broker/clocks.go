package broker

import (
	"context"
	"time"

	"golang.org/x/sys/unix"
)

// clockPulse is how often the clocks are compared: what was open before the
// machine slept is cut so long after it woke, at most.
const clockPulse = 2 * time.Second

// aNap is how long the machine has to have slept. The two clocks are not read at
// the same instant, and this process may have to wait in between.
const aNap = time.Second

// systemClocks returns the time since the boot, and that part of it during which
// the machine was not suspended (clock_gettime(2)).
func systemClocks() (boot, up time.Duration) {
	var b, m unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &b) != nil || unix.ClockGettime(unix.CLOCK_MONOTONIC, &m) != nil {
		return 0, 0
	}
	return time.Duration(b.Nano()), time.Duration(m.Nano())
}

// followClocks cuts every connection when the machine has slept: who wakes it need
// not be who sent it to sleep. It needs no bus to tell it.
func (b *Broker) followClocks(ctx context.Context, pulse time.Duration) {
	tick := time.NewTicker(pulse)
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
		if slept >= aNap {
			b.Log.Info("the machine slept: connections are cut", "slept", slept.Round(time.Second))
			b.pools.Drop("")
		}
	}
}
