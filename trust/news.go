package trust

import (
	"cmp"
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

// newsCache makes the news that agents ask for, and keeps the newest, because all agents get the same. The API calls it
// through Engine.News. It is safe for concurrent use.
type newsCache struct {
	store   Store
	servers Cluster
	keyring *serverKeyring

	mu      sync.Mutex
	news    transport.TrustNews
	made    time.Time
	changed []<-chan struct{} // one of them is closed when the news may have changed
	cancel  []func()
}

// News returns what the cluster trusts, from this server's own state. It does not block. Codes: busy if there is no CA
// yet; those of openKey.
func (e *Engine) News() (transport.TrustNews, error) { return e.news.newest() }

func (c *newsCache) newest() (transport.TrustNews, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.store.Current().MomentNumber()
	if !c.fresh() {
		c.watch()
		state := c.store.Current()
		news, err := c.make(state)
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
func (c *newsCache) watch() {
	for _, cancel := range c.cancel {
		cancel()
	}
	c.changed, c.cancel = nil, nil
	for _, topic := range newsTopics {
		changed, cancel := c.store.WatchTopic(topic)
		c.changed, c.cancel = append(c.changed, changed), append(c.cancel, cancel)
	}
}

func (c *newsCache) make(state *fsm.State) (news transport.TrustNews, err error) {
	if !state.Managed() {
		return news, model.Refuse(model.CodeBusy, "the cluster has no CA yet").WithHint("try again in a moment")
	}
	ring, err := c.keyring.get()
	if err != nil {
		return news, err
	}
	if news.GossipKeys, err = gossipKeys(ring, state); err != nil {
		return news, err
	}
	news.Roots = roots(state)
	servers, _ := c.servers.Addresses()
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
