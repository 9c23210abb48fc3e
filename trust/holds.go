package trust

import (
	"bytes"
	"context"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	holdsAtOnce = 256                    // claims in one question to the leader, and in one entry
	holdsPause  = 100 * time.Millisecond // in which the claims of a burst come together
	holdsEvery  = 3 * time.Second        // between two recorded claims of one member
	holdsLife   = 2 * time.Minute        // then an agent has repeated its claim, perhaps at another server
	maxHolds    = 20_000
)

// claims are what members say of the keys that they use, until the state has it. The members' calls add claims through
// Engine.Holds. Engine.Run runs keep, which has the leader record them; Engine passes it the claims that other servers
// send. It is safe for concurrent use.
type claims struct {
	store   Store
	servers Cluster
	peers   Asker
	log     hclog.Logger

	mu    sync.Mutex
	open  map[model.Subject]claim
	told  map[model.Subject]time.Time // when the last claim of a member was recorded, for holdsEvery
	woken chan struct{}               // capacity 1; has a value when a claim was added
}

type claim struct {
	holds fsm.MemberHolds
	over  fsm.MemberHolds // what the row said when the claim was made
	made  time.Time
}

// Holds has the leader record which keys a member uses, as the digests of pki.RootsDigest and pki.GossipDigest. The
// caller must have checked that the member says so itself. It returns at once, and writes nothing if the state has it
// already. Of several claims of a member within holdsEvery only the newest is recorded. If the leader can't be asked
// for minutes, the claim is dropped, because the member repeats it. It ignores digests of another length, and members
// without a row.
func (e *Engine) Holds(who model.Subject, roots, gossip []byte) { e.claims.add(who, roots, gossip) }

func (c *claims) add(who model.Subject, roots, gossip []byte) {
	if len(roots) != sha256.Size || len(gossip) != 0 && len(gossip) != sha256.Size {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	holds, state := fsm.MemberHolds{Subject: who, Roots: roots, Gossip: gossip}, c.store.Current()
	if !isNews(state, holds) {
		delete(c.open, who)
		return
	}
	if _, known := c.open[who]; !known && len(c.open) >= maxHolds {
		return
	}
	row, _ := state.TrustMemberOf(who) // there is one: the claim is news
	c.open[who] = claim{holds, fsm.MemberHolds{Subject: who, Roots: row.Roots, Gossip: row.Gossip}, time.Now()}
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// isNews reports whether a claim would change the member's row.
func isNews(state *fsm.State, holds fsm.MemberHolds) bool {
	row, ok := state.TrustMemberOf(holds.Subject)
	return ok && row.RevokedIndex == 0 && !(bytes.Equal(row.Roots, holds.Roots) && bytes.Equal(row.Gossip, holds.Gossip))
}

// some returns at most holdsAtOnce claims. It forgets those that are too old, and those whose row has changed since,
// because the member has made a newer claim at another server. It leaves out members whose last claim was recorded less
// than holdsEvery ago. more reports whether any claims are open.
func (c *claims) some() (list []fsm.MemberHolds, more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for who, at := range c.told {
		if time.Since(at) >= holdsEvery {
			delete(c.told, who)
		}
	}
	state := c.store.Current()
	for who, one := range c.open {
		_, early := c.told[who]
		switch {
		case time.Since(one.made) > holdsLife, !early && isNews(state, one.over):
			delete(c.open, who)
		case !early && len(list) < holdsAtOnce:
			list = append(list, one.holds)
		}
	}
	return list, len(c.open) > 0
}

// done notes that claims were recorded, and forgets them, except those that have changed meanwhile.
func (c *claims) done(list []fsm.MemberHolds) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range list {
		c.told[one.Subject] = time.Now()
		now, open := c.open[one.Subject]
		switch {
		case !open:
		case bytes.Equal(now.holds.Roots, one.Roots) && bytes.Equal(now.holds.Gossip, one.Gossip):
			delete(c.open, one.Subject)
		default: // the newer claim follows the one that was recorded
			now.over = one
			c.open[one.Subject] = now
		}
	}
}

// keep has the leader record the claims, many at once, because a rotation changes those of all agents. A member
// can't fill the log: its claims lead to at most one entry per holdsEvery, and those of all members to one per
// holdsPause.
func (c *claims) keep(ctx context.Context) {
	retry := backoff{first: time.Second, last: 10 * time.Second}
	for {
		select {
		case <-c.woken:
		case <-ctx.Done():
			return
		}
		for more := true; more && ctx.Err() == nil; {
			sleep(ctx, holdsPause)
			var list []fsm.MemberHolds
			if list, more = c.some(); len(list) == 0 {
				continue
			}
			if err := c.tell(ctx, list); err != nil {
				wait := retry.after()
				c.log.Debug("the leader does not know yet which keys members use", "members", len(list), "retry_in", wait,
					"error", err)
				sleep(ctx, wait)
				continue
			}
			retry.reset()
			c.done(list)
		}
	}
}

func (c *claims) tell(ctx context.Context, list []fsm.MemberHolds) error {
	leader, self, ok := c.servers.Leader()
	switch {
	case self:
		return c.record(ctx, list)
	case !ok:
		return noLeader()
	}
	return ask(ctx, c.peers, leader, questionHolds, list, &struct{}{})
}

// recordFor records the claims that another server sends. It sends those of any agents, and of no server but itself.
func (c *claims) recordFor(ctx context.Context, list []fsm.MemberHolds) error {
	who, _ := transport.SubjectFrom(ctx)
	if who.Kind != model.SubjectServer {
		return model.Refuse(model.CodeForbidden, "%s is no server", who)
	}
	if len(list) > holdsAtOnce {
		return model.Refuse(model.CodeInvalid, "%d claims in one request; %d may be", len(list), holdsAtOnce)
	}
	for _, one := range list {
		if one.Subject.Kind != model.SubjectAgent && one.Subject != who {
			return model.Refuse(model.CodeForbidden, "%s says which keys %s uses", who,
				model.ClipText(one.Subject.String(), 100)).WithHint("each server says so itself")
		}
	}
	return c.record(ctx, list)
}

// record commits claims in one group. It leaves out those that would change nothing, or that would be refused: the
// member may have been revoked meanwhile.
func (c *claims) record(ctx context.Context, list []fsm.MemberHolds) error {
	state := c.store.Current()
	draft := state.NewDraft(max(state.Now, c.servers.Now()))
	var group []fsm.Command
	for i := range list {
		if !isNews(state, list[i]) {
			continue
		}
		if refusal := draft.Try(&list[i]); refusal != nil {
			c.log.Debug("which keys a member uses is not recorded", "member", list[i].Subject, "error", refusal)
			continue
		}
		group = append(group, &list[i])
	}
	if len(group) == 0 {
		return nil
	}
	return c.servers.Submit(ctx, group)
}
