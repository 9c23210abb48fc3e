package cluster

// fatal stops this server because of err. In production it does not return.
func (s *Server) fatal(err error) { s.failWith(err, func() {}) }

// failWith calls the function first, and then stops this server because of err. After an earlier failure it does
// nothing. A concurrent call blocks until the first call is done.
func (s *Server) failWith(err error, first func()) {
	s.state.failOnce.Do(func() {
		first()
		s.state.failure.Store(&err)
		s.cfg.Fatal(err)
		close(s.state.failed)
	})
}

func (s *Server) failure() error {
	if err := s.state.failure.Load(); err != nil {
		return *err
	}
	return nil
}
