package apiserver

// Revoke makes a token a way for nobody to sign in.
func (s *Server) Revoke(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tokens, token)
}
