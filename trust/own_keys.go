package trust

import (
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// ownKeys makes this server use the CAs and the gossip keys of its state. Only Engine.Run calls it, from one goroutine.
type ownKeys struct {
	self    model.Subject // this server
	store   Store
	keyring *serverKeyring
	claims  *claims
	keeper  keeper
	log     hclog.Logger
}

// keep makes this server use the CAs and the gossip keys of its state, keeps them in its files, and then has the
// leader record that it uses them.
func (k *ownKeys) keep(ctx context.Context) {
	retry := backoff{first: time.Second, last: 10 * time.Minute}
	for ctx.Err() == nil {
		changed, cancelKeys := k.store.WatchTopic("keys")
		admitted, cancelRow := k.store.WatchTopic(fsm.Topic("member/" + k.self.String()))
		wait := lookAgain
		if err := k.keepNow(ctx); err != nil {
			wait = retry.after()
			k.log.Warn("the keys of the cluster are not in this server's files yet", "retry_in", wait, "error", err)
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

func (k *ownKeys) keepNow(ctx context.Context) error {
	state := k.store.Current()
	if !state.Managed() { // this server has not caught up yet
		return nil
	}
	ring, err := k.keyring.get()
	if err != nil {
		return err
	}
	gossip, err := gossipKeys(ring, state)
	if err != nil {
		return err
	}
	err = k.keeper.adopt(ctx, keys{at: state.MomentNumber(), roots: roots(state), gossip: gossip}, func(*notes) {})
	if roots, gossip, ok := k.keeper.uses(); ok {
		k.claims.add(k.self, roots, gossip)
	}
	return err
}
