package agent

import (
	"fmt"

	"holdfast/agent/audit"
)

// kindLocked is an audit record about keys that were locked although nobody asked.
const kindLocked audit.Kind = "locked"

// LockAll locks everything that anybody has unlocked, because the machine goes to
// sleep, say: what is in memory then could be read by who takes it. It is over
// when LockAll returns.
func (a *Agent) LockAll(why string) { a.lockThose(nil, why) }

// LockUser locks everything that one user has unlocked, because the user's screen
// was locked, say.
func (a *Agent) LockUser(uid uint32, why string) { a.lockThose(&uid, why) }

// lockThose locks the keys of a user, or all for nil, and tells those who watch to
// give up what these keys signed in for, whether or not any was unlocked. The log
// comes last: one that cannot be written must not keep a key open.
func (a *Agent) lockThose(user *uint32, why string) {
	a.watch.publish(event{what: "lock", user: user}) // first: who falls behind for the others has heard it
	locked := 0
	for _, rec := range a.Store.List() {
		if user != nil && rec.Owner.UID != *user {
			continue
		}
		if a.lock(rec) {
			locked++
		}
	}
	if user == nil { // also what no record knows of
		for _, d := range a.devices {
			d.backend.Lock(nil)
		}
	}
	a.Log.Info("locked", "reason", why, "keys", locked)
	r := audit.Record{Kind: kindLocked, Owner: user, Detail: map[string]string{"reason": why, "keys": fmt.Sprint(locked)}}
	if err := a.Audit.Append(r); err != nil {
		a.Log.Error("audit", "error", err)
	}
}
