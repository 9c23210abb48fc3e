package trust

import (
	"encoding/hex"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// shownLacking is how many members GossipKeys names.
const shownLacking = 10

// GossipKeys returns the gossip keys of a state, and which members don't use them yet. Only the leader knows who is
// absent. It does not block. Codes: busy if the state has no keys yet; not_found if the keyring lacks a key;
// integrity_check_failed.
func (e *Engine) GossipKeys(state *fsm.State) (api.GossipKeys, error) { return e.gossip.status(state) }

func (r *gossipRotation) status(state *fsm.State) (api.GossipKeys, error) {
	v := api.GossipKeys{Lacking: []api.GossipLacking{}}
	ring, err := r.keyring.get()
	if err != nil {
		return v, err
	}
	rows := state.KeysOf(model.KeyGossip)
	if len(rows) == 0 {
		return v, noGossipKey()
	}
	now := max(state.Now, r.servers.Now())
	var step model.Time
	for _, row := range rows {
		key, err := openKey(ring, state, row)
		if err != nil {
			return v, err
		}
		step = max(step, row.At)
		v.Keys = append(v.Keys, api.GossipKey{Name: row.Name, Phase: row.Phase, CreatedIndex: row.CreatedIndex,
			Since: wallAt(now, row.At), Digest: hex.EncodeToString(pki.GossipDigest([][]byte{key})[:6])})
	}
	v.Rotating, v.Since = len(rows) > 1, wallAt(now, step)
	v.Due = knownToRevoked(state, rows[len(rows)-1])
	lacking, err := r.lacking(ring, state)
	if err != nil {
		return v, err
	}
	v.LackingCount = len(lacking)
	for i := range lacking {
		m := &lacking[i]
		if m.waits {
			v.WaitsFor++
		}
		if i < shownLacking {
			v.Lacking = append(v.Lacking, api.GossipLacking{Subject: m.who.String(), Absent: m.absent, Waits: m.waits})
		}
	}
	return v, nil
}

// RotateGossip returns the commands that begin a rotation of the gossip key, or none while one is in progress. Codes:
// as for GossipKeys.
func (e *Engine) RotateGossip(state *fsm.State) ([]fsm.Command, error) { return e.gossip.begin(state) }

func (r *gossipRotation) begin(state *fsm.State) ([]fsm.Command, error) {
	switch len(state.KeysOf(model.KeyGossip)) {
	case 0:
		return nil, noGossipKey()
	case 1:
	default:
		return nil, nil
	}
	ring, err := r.keyring.get()
	if err != nil {
		return nil, err
	}
	return beginGossip(ring, state)
}

// ForceGossip lets the rotation in progress pass over absent members at once, and over all others that lack the keys 10
// minutes after its step began. It holds until another server leads.
func (e *Engine) ForceGossip(state *fsm.State) { e.gossip.force(state) }

func (r *gossipRotation) force(state *fsm.State) {
	if keys := state.KeysOf(model.KeyGossip); len(keys) > 1 {
		r.forcedBy.Store(&keys[len(keys)-1].Name)
	}
}

func noGossipKey() *model.Error {
	return model.Refuse(model.CodeBusy, "the cluster has no gossip key yet").
		WithHint("try again in a moment; if it stays so, the log of the leading server says why")
}

// wallAt returns the wall clock at the cluster time t, when the cluster time is now. It reckons from this server's
// clock: a reader may have moved state.Now on since the entry that state.Wall is from.
func wallAt(now, t model.Time) time.Time {
	return time.Now().UTC().Add(-time.Duration(now-t) * time.Millisecond).Truncate(time.Second)
}
