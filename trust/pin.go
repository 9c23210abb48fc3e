package trust

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// shownKey is the key that an agent showed while its row had AnyKey set (see fsm.TrustMember), so that any key counted.
type shownKey struct {
	Name     string `cbor:"1,keyasint"` // of the agent
	Key      []byte `cbor:"2,keyasint"`
	NotAfter int64  `cbor:"3,keyasint"` // when its certificate expires, in Unix ms

	CA     model.KeyName `cbor:"4,keyasint,omitempty"` // which CA signed it, if this server knows that
	Issuer []byte        `cbor:"5,keyasint,omitempty"` // the id of that CA's key; the leader may know the CA by it
}

// Proved notes the key of an agent whose row takes any key, so that only this key counts from then on. The agent must
// have proved in a handshake that it has the key: anybody can show a certificate. Proved does not block.
func (e *Engine) Proved(id pki.Identity, leaf *x509.Certificate) {
	who, ok := memberOf(id)
	if !ok {
		return
	}
	state := e.cfg.Store.Current()
	if row, known := state.TrustMemberOf(who); known && row.AnyKey {
		e.pins.add(shownKey{Name: who.Name, Key: pki.KeyHash(leaf), NotAfter: leaf.NotAfter.UnixMilli(),
			CA: caWithID(state, leaf.AuthorityKeyId), Issuer: leaf.AuthorityKeyId})
	}
}

// pins has the keys that agents have shown after a recovery, until the state has them. Handshakes add keys through
// Engine.Proved. Engine.Run runs keep, which has the leader record them; Engine passes it the keys of other servers. It
// is safe for concurrent use.
type pins struct {
	store   Store
	servers Cluster
	peers   Asker
	record  func(ctx context.Context, who model.Subject, q ownRenewal) error // Engine.record
	log     hclog.Logger

	mu    sync.Mutex
	shown map[string]shownKey // by the agent's name: the first key that it showed
	woken chan struct{}       // capacity 1; has a value when a key was added to shown
}

// add notes a key, unless the agent has shown another one. It does not block.
func (p *pins) add(k shownKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known := p.shown[k.Name]; known {
		return
	}
	p.shown[k.Name] = k
	select {
	case p.woken <- struct{}{}:
	default:
	}
}

func (p *pins) all() []shownKey {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.shown))
}

func (p *pins) drop(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.shown, name)
}

// keep records the keys that agents have shown while their rows had AnyKey set. From then on, no other key of such
// an agent counts.
func (p *pins) keep(ctx context.Context) {
	retry := backoff{first: time.Second, last: time.Minute}
	for {
		select {
		case <-p.woken:
		case <-ctx.Done():
			return
		}
		for _, k := range p.all() {
			for ctx.Err() == nil {
				err := p.pin(ctx, k)
				if err == nil || settled(err) {
					break
				}
				wait := retry.after()
				p.log.Warn("the key of an agent is not in the recovered state yet", "agent", k.Name, "retry_in", wait,
					"error", err)
				sleep(ctx, wait)
			}
			retry.reset()
			p.drop(k.Name)
		}
	}
}

// settled reports whether the row no longer takes the key, so there is nothing left to do.
func settled(err error) bool {
	refusal, ok := errors.AsType[*model.Error](err)
	return ok && slices.Contains([]model.Code{model.CodeStale, model.CodeNotFound, model.CodeMemberRevoked}, refusal.Code)
}

// pin has the leader record the key of an agent.
func (p *pins) pin(ctx context.Context, k shownKey) error {
	leader, self, ok := p.servers.Leader()
	switch {
	case self:
		return p.recordPin(ctx, k)
	case !ok:
		return noLeader()
	}
	return ask(ctx, p.peers, leader, questionPin, k, &struct{}{})
}

// pinFor records a key that the sender of the request has seen. It refuses a sender that is no server.
func (p *pins) pinFor(ctx context.Context, k shownKey) error {
	if who, _ := transport.SubjectFrom(ctx); who.Kind != model.SubjectServer {
		return model.Refuse(model.CodeForbidden, "%s is no server", who)
	}
	return p.recordPin(ctx, k)
}

// recordPin does nothing if the row takes only certain keys already. It looks the CA up itself: the server that saw the
// key may have an older state, and a row without a CA would hold up a rotation of the CA.
func (p *pins) recordPin(ctx context.Context, k shownKey) error {
	who := model.Subject{Kind: model.SubjectAgent, Name: k.Name}
	state := p.store.Current()
	if row, ok := state.TrustMemberOf(who); ok && !row.AnyKey {
		return nil
	}
	ca := cmp.Or(k.CA, caWithID(state, k.Issuer))
	return p.record(ctx, who, ownRenewal{Old: k.Key, Key: k.Key, NotAfter: k.NotAfter, CA: ca})
}
