package httpapi

import (
	"bytes"
	"cmp"
	"context"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Trust knows what the cluster trusts. trust.Engine implements it.
type Trust interface {
	// News returns what this server's state says. It must not block.
	News() (transport.TrustNews, error)
	// Holds has the leader record which keys a member uses. It must not block.
	Holds(who model.Subject, roots, gossip []byte)
}

// agentTrust records which keys the agent uses, and returns what the cluster trusts. If the agent knows that already, it
// first waits until it changes, at most q.Wait. An answer with the digest that the agent knows has no lists. Codes:
// not_supported, forbidden, not_caught_up, and those of Trust.News.
func (s *Server) agentTrust(ctx context.Context, who caller, q transport.TrustRequest) (transport.TrustNews, error) {
	if s.cfg.Trust == nil {
		return transport.TrustNews{}, model.Refuse(model.CodeNotSupported, "this cluster issues no certificates").
			WithHint("the servers need tls { managed = true }")
	}
	if err := cmp.Or(who.isNode(q.Name), s.caughtUp(), s.replaced(q.Cluster), s.reaches(ctx, q.At)); err != nil {
		return transport.TrustNews{}, err
	}
	if len(q.Roots) > 0 {
		s.cfg.Trust.Holds(who.Subject, q.Roots, q.Gossip)
	}
	s.awaitNews(ctx, q)
	if err := s.caughtUp(); err != nil {
		return transport.TrustNews{}, err
	}
	news, err := s.cfg.Trust.News()
	if err == nil && bytes.Equal(news.Digest, q.Known) {
		news = transport.TrustNews{Digest: news.Digest, At: news.At}
	}
	return news, err
}

// awaitNews blocks until the news differ from those that the agent knows, and at most q.Wait.
func (s *Server) awaitNews(ctx context.Context, q transport.TrustRequest) {
	over, leave := s.agents.guard.join()
	defer leave()
	end := time.Now().Add(parsePoll(q.Wait))
	for changed := false; ; {
		index := s.cfg.Store.Current().Index
		if news, err := s.cfg.Trust.News(); err != nil || !bytes.Equal(news.Digest, q.Known) {
			if changed {
				s.agents.trust.wait(ctx)
			}
			return
		}
		if changed = s.watches.until(ctx, over, index, time.Until(end), "keys", "revoked"); !changed {
			return
		}
	}
}

// reaches waits until this server's state has the number at, for at most lagWait. The leader does not wait: only a
// restore can have made its state older than what an agent saw. Code: not_caught_up.
func (s *Server) reaches(ctx context.Context, at uint64) error {
	ctx, cancel := context.WithTimeout(ctx, lagWait)
	defer cancel()
	for {
		state, next := s.cfg.Store.Watch()
		if _, leads, _ := s.cfg.Consensus.Leader(); leads || state.MomentNumber() >= at {
			return nil
		}
		if !pause(ctx, next, nil, lagWait) {
			return model.Refuse(model.CodeNotCaughtUp, "this server's state is older than what the agent has seen").
				WithHint("ask another server")
		}
	}
}
