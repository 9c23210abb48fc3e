package trust

import (
	"bytes"
	"context"
	"crypto/x509"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

const (
	newsWait   = time.Minute            // of one long poll
	newsPause  = 200 * time.Millisecond // the least time between two long polls
	maxServers = 32                     // addresses that an agent keeps
)

// FollowerConfig configures a Follower. All fields are required, except those with a default.
type FollowerConfig struct {
	Name string            // of the node
	Dir  transport.Managed // with the agent's files
	// Credentials are the agent's, and NewFollower sets their admission. Reload makes the process use the files of Dir
	// after they have changed. CloseWhere closes open connections; see transport.Listener.CloseWhere.
	Credentials *transport.Credentials
	Reload      func() error
	CloseWhere  func(func(pki.Identity, *x509.Certificate) bool) int
	Gossip      Gossip // default: the agent does not gossip
	// Ask asks the servers for news. transport.Client.Trust implements it.
	Ask func(context.Context, transport.TrustRequest) (transport.TrustNews, error)
	// Servers gets the addresses (host:port) of the servers each time when they change. It must not block.
	Servers func([]string)
	Follows func() string // returns the model.History that the node follows, as text; default none
	Logger  hclog.Logger
}

// Follower keeps an agent up to date with what the cluster trusts: CAs, gossip keys, the addresses of the servers, and
// revocations. It tells the servers which keys the agent uses.
type Follower struct {
	cfg     FollowerConfig
	keeper  keeper
	revoked atomic.Pointer[voids]
	// The rest is used by Run only.
	news transport.TrustNews
	at   uint64
}

// NewFollower reads what the agent knew before it stopped. From now on its credentials refuse certificates that were
// revoked. A damaged file counts as missing.
func NewFollower(cfg FollowerConfig) *Follower {
	f := &Follower{cfg: cfg, keeper: keeper{dir: cfg.Dir, creds: cfg.Credentials, reload: cfg.Reload, gossip: cfg.Gossip}}
	known, err := readNotes(cfg.Dir)
	if err != nil {
		cfg.Logger.Warn("the agent does not know what was revoked until a server tells it", "error", err)
	}
	f.at = known.At
	f.refuse(known.Revoked)
	if len(known.Servers) > 0 {
		cfg.Servers(known.Servers)
	}
	cfg.Credentials.SetAdmission(f.Admit)
	return f
}

// Admit refuses a certificate of which the agent knows that it was revoked. It does not block. Code: member_revoked.
func (f *Follower) Admit(id pki.Identity, leaf *x509.Certificate) error {
	return f.revoked.Load().check(id, leaf)
}

// Run asks the servers for news and acts on them, until ctx ends. After a failure it tries again, with pauses that grow
// from 1 s to 1 min. It returns nil.
func (f *Follower) Run(ctx context.Context) error {
	asking, writing := backoff{first: time.Second, last: time.Minute}, backoff{first: time.Second, last: time.Minute}
	for ctx.Err() == nil {
		wait := newsWait
		if err := f.adopt(ctx); err != nil {
			wait = writing.after()
			f.cfg.Logger.Warn("the keys of the cluster are not in the agent's files yet", "retry_in", wait, "error", err)
		} else {
			writing.reset()
		}
		news, err := f.cfg.Ask(ctx, f.question(wait))
		if err != nil {
			pause := asking.after()
			f.cfg.Logger.Debug("no news of what the cluster trusts", "retry_in", pause, "error", err)
			sleep(ctx, pause)
			continue
		}
		asking.reset()
		f.take(news)
		sleep(ctx, newsPause)
	}
	return nil
}

// question says which keys the agent uses, if they are in its files.
func (f *Follower) question(wait time.Duration) transport.TrustRequest {
	q := transport.TrustRequest{Name: f.cfg.Name, Known: f.news.Digest, Wait: model.Duration(wait.Milliseconds()),
		At: knownAt(notes{At: f.at}, f.cfg.Credentials.Leaf())}
	if roots, gossip, ok := f.keeper.uses(); ok {
		q.Roots, q.Gossip = roots, gossip
	}
	if f.cfg.Follows != nil {
		q.Cluster = f.cfg.Follows()
	}
	return q
}

// take acts on what needs no file: the addresses of the servers, and revocations.
func (f *Follower) take(news transport.TrustNews) {
	f.at = max(f.at, news.At)
	if bytes.Equal(news.Digest, f.news.Digest) {
		f.news.At = news.At
		return
	}
	news.Servers = news.Servers[:min(len(news.Servers), maxServers)]
	if len(news.Servers) > 0 && !slices.Equal(news.Servers, f.news.Servers) {
		f.cfg.Servers(news.Servers)
	}
	f.news = news
	f.refuse(news.Revoked)
	refused := func(id pki.Identity, leaf *x509.Certificate) bool { return f.Admit(id, leaf) != nil }
	if n := f.cfg.CloseWhere(refused); n > 0 {
		f.cfg.Logger.Warn("connections ended whose certificates were revoked", "connections", n)
	}
}

func (f *Follower) refuse(revoked []transport.Revoked) {
	v := newVoids(revoked)
	f.revoked.Store(&v)
}

// adopt writes the newest news to the files. Before the first news there is nothing to do.
func (f *Follower) adopt(ctx context.Context) error {
	if len(f.news.Digest) == 0 {
		return nil
	}
	next := keys{at: f.news.At, roots: f.news.Roots, gossip: f.news.GossipKeys}
	return f.keeper.adopt(ctx, next, func(n *notes) {
		n.Revoked = f.news.Revoked
		if len(f.news.Servers) > 0 {
			n.Servers = f.news.Servers
		}
	})
}
