package trust

import (
	"context"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// keepAgent renews the certificate of the agent of this server's process once it has expired. An agent renews its own
// certificate before that, but the servers refuse an expired one. It expires if the cluster had no leader for weeks, or
// if the clock of this machine was behind at the start, so that Revive took it for valid.
func (o *ownCertificates) keepAgent(ctx context.Context) {
	for o.cfg.Agent && ctx.Err() == nil {
		if err := o.keepAgentNow(ctx); err != nil {
			o.log.Warn("the certificate of this machine's agent is not renewed yet", "retry_in", lookAgain, "error", err)
		}
		sleep(ctx, lookAgain)
	}
}

// keepAgentNow does what is due. The key stays the same, so the agent needs no new row.
func (o *ownCertificates) keepAgentNow(ctx context.Context) error {
	pair, found, err := o.dir.Pair(pki.RoleAgent)
	if err != nil || !found || time.Now().Before(pair.Leaf.NotAfter) {
		return err
	}
	state := o.cfg.Store.Current()
	who := model.Subject{Kind: model.SubjectAgent, Name: o.cfg.Name}
	if row, ok := state.TrustMemberOf(who); !ok || row.RevokedIndex != 0 {
		return nil // a token lets it join again
	}
	if err := o.caughtUp(state, pair.Leaf); err != nil {
		return err
	}
	ring, err := o.keyring.get()
	if err != nil {
		return err
	}
	ca, err := authority(ring, state)
	if err != nil {
		return err
	}
	cert, err := signAgain(ca, pki.RoleAgent, o.cfg.Name, pair.Leaf, o.cfg.Lifetime)
	if err != nil {
		return err
	}
	pair.Certificate, pair.Leaf = [][]byte{cert.Raw}, cert
	gossip, err := gossipKeys(ring, state)
	if err != nil {
		return err
	}
	next := unwritten{pair: pair, roots: roots(state), gossip: gossip, at: state.MomentNumber()}
	if err := next.write(ctx, o.dir, pki.RoleAgent); err != nil {
		return err
	}
	o.log.Warn("the expired certificate of this machine's agent was renewed", "expires", pki.Stamp(cert.NotAfter))
	return nil
}
