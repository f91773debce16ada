package door

// Hold keeps the socket from being closed until release is called.
func (s *Socket) Hold() (release func()) {
	s.mu.Lock()
	return s.mu.Unlock
}
