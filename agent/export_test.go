package agent

// Watchers returns how many callers watch.
func (a *Agent) Watchers() int {
	a.watch.mu.Lock()
	defer a.watch.mu.Unlock()
	return len(a.watch.subs)
}
