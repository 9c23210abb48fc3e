package trust

import (
	"bytes"
	"context"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A rotation of the gossip key has three steps. The state alone says which one it is at, so the next leader continues.
//  1. A new key is incoming. Each member gets it, and goes on encrypting with the active key.
//  2. Once all have it, the new key becomes active and the old one is retired. Members still decrypt with both.
//  3. Once all encrypt with the new key, the old one is dropped.

const (
	gossipLook  = 5 * time.Second // how often the leader looks whether members became absent
	forcedAfter = absentFor       // from the begin of a step until a forced rotation passes over members that run
	gossipPause = model.Minute    // from the last change of the newest key to a rotation that a revocation causes
)

// gossipRotation replaces the gossip key of the cluster. The rows of the keys say which step a rotation is at; only
// whether a person has forced it is in memory. On the leader, Engine.Lead runs its steps, and the API begins a rotation
// with Engine.RotateGossip or forces it with Engine.ForceGossip. Any server shows the keys with Engine.GossipKeys. It
// is safe for concurrent use.
type gossipRotation struct {
	store    Store
	servers  Cluster
	keyring  *serverKeyring
	members  memberList
	log      hclog.Logger
	forcedBy atomic.Pointer[model.KeyName] // the newest key of the rotation that was forced; see Engine.ForceGossip
}

// run does the steps of rotations, and begins one after each revocation. It blocks until ctx ends.
func (r *gossipRotation) run(ctx context.Context) {
	retry := backoff{first: time.Second, last: time.Minute}
	for ctx.Err() == nil {
		keys, noKeys := r.store.WatchTopic("keys")
		members, noMembers := r.store.WatchTopic("members")
		holds, noHolds := r.store.WatchTopic("holds")
		if err := r.turn(ctx); err != nil {
			wait := retry.after()
			r.log.Warn("the rotation of the gossip key can't go on", "retry_in", wait, "error", err)
			sleep(ctx, wait)
		} else {
			retry.reset()
			sleep(ctx, closePause) // reports of many members lead to one look
		}
		timer := time.NewTimer(gossipLook)
		select {
		case <-keys:
		case <-members:
		case <-holds:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		noKeys()
		noMembers()
		noHolds()
	}
}

// turn does the next step, if it may be done now.
func (r *gossipRotation) turn(ctx context.Context) error {
	state := r.store.Current()
	keys := state.KeysOf(model.KeyGossip)
	if len(keys) == 0 {
		return nil
	}
	newest := keys[len(keys)-1]
	known := knownToRevoked(state, newest) && r.servers.Now()-newest.At >= model.Time(gossipPause)
	if len(keys) == 1 && !known {
		return nil
	}
	ring, err := r.keyring.get()
	if err != nil {
		return err
	}
	var group []fsm.Command
	step := ""
	var without []string
	if known {
		step = "a new key is handed out, because a member was revoked"
		group, err = beginGossip(ring, state)
	} else {
		lacking, failed := r.lacking(ring, state)
		without = running(lacking)
		switch {
		case failed != nil:
			return failed
		case anyWaits(lacking):
			return nil
		case newest.Phase == model.KeyIncoming:
			step = "all members have the new key, and encrypt with it from now on"
			group, err = useGossip(ring, state)
		default:
			step = "all members encrypt with the new key, and the old one is dropped"
			group = dropGossip(keys)
		}
	}
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, foundTime)
	defer cancel()
	if err := r.servers.Submit(ctx, group); err != nil {
		return err
	}
	if len(without) > 0 {
		r.log.Warn("the rotation of the gossip key goes on without members that run, because it was forced: they may not "+
			"hear the others until they take the keys from a server", "members", len(without),
			"such_as", without[:min(len(without), shownLacking)])
	}
	r.log.Info("the gossip key changes: "+step, "newest", newest.Name)
	return nil
}

// knownToRevoked reports whether a member that was revoked may know the newest gossip key, because the key is older
// than the revocation.
func knownToRevoked(state *fsm.State, newest *fsm.TrustKey) bool {
	for _, m := range state.TrustMembers.All() {
		if m.LastRevoked() > newest.CreatedIndex {
			return true
		}
	}
	return false
}

// beginGossip returns the commands that hand out a new key. Nobody encrypts with an incoming key yet, so the new one
// takes its place. Codes: those of resealed.
func beginGossip(ring *keyring.Ring, state *fsm.State) (group []fsm.Command, err error) {
	keys := state.KeysOf(model.KeyGossip)
	newest := keys[len(keys)-1]
	if newest.Phase == model.KeyIncoming {
		retired, err := resealed(ring, state, newest, model.KeyRetired)
		if err != nil {
			return nil, err
		}
		group = append(group, retired, &fsm.KeyDrop{Name: newest.Name})
	}
	_, n, _ := newest.Name.Split()
	next, err := sealed(ring, state, transport.NewGossipKey(),
		fsm.KeyPut{Name: model.NewKeyName(model.KeyGossip, n+1), Version: 1, Phase: model.KeyIncoming})
	return append(group, next), err
}

// useGossip returns the commands that make the incoming key the active one. Codes: those of resealed.
func useGossip(ring *keyring.Ring, state *fsm.State) (group []fsm.Command, err error) {
	for _, row := range state.KeysOf(model.KeyGossip) { // the incoming key is the last one
		next := model.KeyRetired
		switch row.Phase {
		case model.KeyRetired:
			continue
		case model.KeyIncoming:
			next = model.KeyActive
		case model.KeyActive:
		}
		put, err := resealed(ring, state, row, next)
		if err != nil {
			return nil, err
		}
		group = append(group, put)
	}
	return group, nil
}

func dropGossip(keys []*fsm.TrustKey) (group []fsm.Command) {
	for _, row := range keys {
		if row.Phase == model.KeyRetired {
			group = append(group, &fsm.KeyDrop{Name: row.Name})
		}
	}
	return group
}

// lacking returns the counted members that don't use exactly the gossip keys of the state, the active one first.
func (r *gossipRotation) lacking(ring *keyring.Ring, state *fsm.State) (lacking []lackingMember, err error) {
	all, err := gossipKeys(ring, state)
	if err != nil {
		return nil, err
	}
	digest := pki.GossipDigest(all)
	keys := state.KeysOf(model.KeyGossip)
	var step model.Time
	for _, row := range keys {
		step = max(step, row.At)
	}
	now, forced := r.servers.Now(), r.forced(keys[len(keys)-1].Name)
	for _, c := range r.members.counted(state) {
		if c.gossips() && (c.row == nil || !usesGossip(c.row, digest)) {
			left := c.passed(now, step, forced) || forced && now-step >= model.Time(forcedAfter)
			lacking = append(lacking, lackingMember{c, !left})
		}
	}
	return lacking, nil
}

// lackingMember is a counted member that does not use the keys of the state yet.
type lackingMember struct {
	counted
	waits bool // a rotation waits for it
}

func anyWaits(lacking []lackingMember) bool {
	for i := range lacking {
		if lacking[i].waits {
			return true
		}
	}
	return false
}

// running returns the members that are not absent.
func running(lacking []lackingMember) (names []string) {
	for i := range lacking {
		if !lacking[i].absent {
			names = append(names, lacking[i].who.String())
		}
	}
	return names
}

// usesGossip reports whether a member uses the list of gossip keys with this digest, or has said that it does not
// gossip.
func usesGossip(m *fsm.TrustMember, digest []byte) bool {
	return bytes.Equal(m.Gossip, digest) || len(m.Gossip) == 0 && len(m.Roots) > 0
}

// forced reports whether Engine.ForceGossip was called for the rotation that has this newest key.
func (r *gossipRotation) forced(newest model.KeyName) bool {
	name := r.forcedBy.Load()
	return name != nil && *name == newest
}
