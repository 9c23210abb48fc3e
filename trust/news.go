package trust

import (
	"cmp"
	"context"
	"crypto/sha256"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// newsLife is how long news are kept before the addresses of the servers are looked up again.
const newsLife = 5 * time.Second

// newsTopics are the topics of the state that change the news.
var newsTopics = [...]fsm.Topic{"keys", "revoked"}

// newsCache has the newest news, because all agents get the same. It is safe for concurrent use.
type newsCache struct {
	mu      sync.Mutex
	news    transport.TrustNews
	made    time.Time
	changed []<-chan struct{} // one of them is closed when the news may have changed
	cancel  []func()
}

// News returns what the cluster trusts, from this server's own state. It does not block. Codes: busy if there is no CA
// yet; those of openKey.
func (e *Engine) News() (transport.TrustNews, error) {
	c := &e.news
	c.mu.Lock()
	defer c.mu.Unlock()
	at := e.cfg.Store.Current().MomentNumber()
	if !c.fresh() {
		c.watch(e.cfg.Store)
		state := e.cfg.Store.Current()
		news, err := e.makeNews(state)
		if err != nil {
			c.made = time.Time{}
			return transport.TrustNews{}, err
		}
		c.news, c.made, at = news, time.Now(), state.MomentNumber()
	}
	news := c.news
	news.At = at
	return news, nil
}

func (c *newsCache) fresh() bool {
	if c.made.IsZero() || time.Since(c.made) > newsLife {
		return false
	}
	for _, changed := range c.changed {
		select {
		case <-changed:
			return false
		default:
		}
	}
	return true
}

// watch watches the topics from now on.
func (c *newsCache) watch(store Store) {
	for _, cancel := range c.cancel {
		cancel()
	}
	c.changed, c.cancel = nil, nil
	for _, topic := range newsTopics {
		changed, cancel := store.WatchTopic(topic)
		c.changed, c.cancel = append(c.changed, changed), append(c.cancel, cancel)
	}
}

func (e *Engine) makeNews(state *fsm.State) (news transport.TrustNews, err error) {
	if !state.Managed() {
		return news, model.Refuse(model.CodeBusy, "the cluster has no CA yet").WithHint("try again in a moment")
	}
	ring, err := e.keyring()
	if err != nil {
		return news, err
	}
	if news.GossipKeys, err = gossipKeys(ring, state); err != nil {
		return news, err
	}
	news.Roots = roots(state)
	servers, _ := e.cfg.Servers.Addresses()
	news.Servers = slices.Sorted(slices.Values(servers)) // each server lists itself first, and all digests must be equal
	news.Revoked = revocations(state)
	encoded, err := transport.EncodeCBOR(news)
	if err != nil {
		return news, err
	}
	digest := sha256.Sum256(encoded)
	news.Digest = digest[:]
	return news, nil
}

// revocations returns the members that were revoked and may have certificates that have not expired: the newest
// transport.MaxRevoked, by name. A member that has returned is among them until its newest certificate has expired.
func revocations(state *fsm.State) []transport.Revoked {
	var all []transport.Revoked
	for _, m := range state.TrustMembers.All() {
		if m.VoidBefore != 0 && (m.NotAfter == 0 || m.NotAfter > state.Wall) {
			all = append(all, transport.Revoked{Kind: m.Subject.Kind, Name: m.Subject.Name, VoidBefore: m.VoidBefore})
		}
	}
	slices.SortFunc(all, func(a, b transport.Revoked) int { return cmp.Compare(b.VoidBefore, a.VoidBefore) })
	all = all[:min(len(all), transport.MaxRevoked)]
	slices.SortFunc(all, func(a, b transport.Revoked) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return all
}

// keepKeys makes this server use the CAs and the gossip keys of its state, keeps them in its files, and then has the
// leader record that it uses them.
func (e *Engine) keepKeys(ctx context.Context) {
	retry := backoff{first: time.Second, last: 10 * time.Minute}
	for ctx.Err() == nil {
		changed, cancelKeys := e.cfg.Store.WatchTopic("keys")
		admitted, cancelRow := e.cfg.Store.WatchTopic(fsm.Topic("member/" + e.self.String()))
		wait := lookAgain
		if err := e.keepKeysNow(ctx); err != nil {
			wait = retry.after()
			e.log.Warn("the keys of the cluster are not in this server's files yet", "retry_in", wait, "error", err)
		} else {
			retry.reset()
		}
		timer := time.NewTimer(wait)
		select {
		case <-changed:
		case <-admitted:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		cancelKeys()
		cancelRow()
	}
}

func (e *Engine) keepKeysNow(ctx context.Context) error {
	state := e.cfg.Store.Current()
	if !state.Managed() { // this server has not caught up yet
		return nil
	}
	ring, err := e.keyring()
	if err != nil {
		return err
	}
	gossip, err := gossipKeys(ring, state)
	if err != nil {
		return err
	}
	k := e.keeper()
	err = k.adopt(ctx, keys{at: state.MomentNumber(), roots: roots(state), gossip: gossip}, func(*notes) {})
	if roots, gossip, ok := k.uses(); ok {
		e.Holds(e.self, roots, gossip)
	}
	return err
}

func (e *Engine) keeper() keeper {
	return keeper{dir: e.dir, creds: e.cfg.Credentials, reload: e.cfg.Reload, gossip: e.cfg.Gossip}
}
