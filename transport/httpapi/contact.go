package httpapi

import (
	"context"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// revokes reports whether somebody's certificate, rights or access token may have been taken away.
func (s *Server) revokes() bool {
	state := s.cfg.Store.Current()
	return s.cfg.Managed || state.RightsIndex > 0 || state.AccessTokens.Len() > 0
}

// inContact returns an error if this server may not know of a revocation, because it has not been up to date with a
// leader for longer than staleLimit. Until it first is, the time since its start counts. It never fails on the leader,
// or if the cluster makes no certificates. It does not block. Code: no_leader.
func (s *Server) inContact() error {
	if !s.revokes() {
		return nil
	}
	stale := s.cfg.Freshness.StaleFor()
	if stale <= staleLimit {
		return nil
	}
	return model.Refuse(model.CodeNoLeader,
		"server %s has not been up to date with a leader for %s, and may not know of a revocation",
		s.cfg.Name, stale.Round(time.Second)).
		WithHint("ask another server, or run the command on that machine, over the server's unix socket")
}

// needsContact reports whether a server must be inContact to answer the caller. That concerns people who called it over
// TCP, and writes of agents. Other servers and the unix socket are always answered.
func (c caller) needsContact(rt route) bool {
	if c.via != "" || rt.alone {
		return false
	}
	return c.role() == pki.RoleCLI && c.Kind != model.SubjectUID || c.Kind == model.SubjectAgent && rt.write
}

// whileInContact returns the context of a stream. If the caller needs contact, the context is canceled within staleLook
// after inContact fails. The caller must call cancel once the stream has ended.
func (s *Server) whileInContact(ctx context.Context, rt route, who caller) (_ context.Context, cancel func()) {
	if !s.revokes() || !who.needsContact(rt) {
		return ctx, func() {}
	}
	ctx, stop := context.WithCancel(ctx)
	over, leave := s.contact.join()
	go func() {
		select {
		case <-over:
			stop()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { stop(); leave() }
}
