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

// agentNews answers agents that ask what the cluster trusts.
type agentNews struct {
	s     *Server
	delay *answerDelay
}

// answer records which keys the agent uses, and returns what the cluster trusts. If the agent knows that already, it
// first waits until it changes, at most q.Wait. An answer with the digest that the agent knows has no lists. Codes:
// not_supported, forbidden, not_caught_up, and those of Trust.News.
func (a *agentNews) answer(ctx context.Context, who caller, q transport.TrustRequest) (transport.TrustNews, error) {
	trust := a.s.cfg.Trust
	if trust == nil {
		return transport.TrustNews{}, model.Refuse(model.CodeNotSupported, "this cluster issues no certificates").
			WithHint("the servers need tls { managed = true }")
	}
	if err := cmp.Or(who.isNode(q.Name), a.s.caughtUp(), a.s.replaced(q.Cluster)); err != nil {
		return transport.TrustNews{}, err
	}
	if err := a.reaches(ctx, q.At); err != nil {
		return transport.TrustNews{}, err
	}
	if len(q.Roots) > 0 {
		trust.Holds(who.Subject, q.Roots, q.Gossip)
	}
	a.wait(ctx, q)
	if err := a.s.caughtUp(); err != nil {
		return transport.TrustNews{}, err
	}
	news, err := trust.News()
	if err == nil && bytes.Equal(news.Digest, q.Known) {
		news = transport.TrustNews{Digest: news.Digest, At: news.At}
	}
	return news, err
}

// wait blocks until the news differ from those that the agent knows, and at most q.Wait.
func (a *agentNews) wait(ctx context.Context, q transport.TrustRequest) {
	over, leave := a.s.agents.guard.join()
	defer leave()
	end := time.Now().Add(parsePoll(q.Wait))
	for changed := false; ; {
		index := a.s.cfg.Store.Current().Index
		if news, err := a.s.cfg.Trust.News(); err != nil || !bytes.Equal(news.Digest, q.Known) {
			if changed {
				a.delay.wait(ctx)
			}
			return
		}
		if changed = a.s.watches.until(ctx, over, index, time.Until(end), "keys", "revoked"); !changed {
			return
		}
	}
}

// reaches waits until this server's state has the number at, for at most lagWait. The leader does not wait: only a
// restore can have made its state older than what an agent saw. Code: not_caught_up.
func (a *agentNews) reaches(ctx context.Context, at uint64) error {
	ctx, cancel := context.WithTimeout(ctx, lagWait)
	defer cancel()
	for {
		state, next := a.s.cfg.Store.Watch()
		if _, leads, _ := a.s.cfg.Consensus.Leader(); leads || state.MomentNumber() >= at {
			return nil
		}
		if !pause(ctx, next, nil, lagWait) {
			return model.Refuse(model.CodeNotCaughtUp, "this server's state is older than what the agent has seen").
				WithHint("ask another server")
		}
	}
}
