package cluster

import (
	"context"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
)

// keyring gets keys of registrations that this server's state does not have yet from the other servers. A server that
// has just started needs these keys to check heartbeats. It can't wait until its own state has caught up, because
// leases would expire meanwhile. Without a leader, the state never catches up.
type keyring struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	wanted map[model.NodeID]bool
	known  map[model.NodeID]learnedKey
}

// learnedKey is a registration in another server's state.
type learnedKey struct {
	nodeKey
	index uint64 // of the other server's state; the key is not used any more once this server's state is as new
}

// nodeKey is the last registration of a node in a server's state. Offline is true if the node is offline in that state.
type nodeKey struct {
	Node    model.NodeID `cbor:"1,keyasint"`
	Epoch   uint64       `cbor:"2,keyasint"`
	Key     []byte       `cbor:"3,keyasint"`
	Offline bool         `cbor:"4,keyasint,omitempty"`
}

type keyQuery struct {
	Nodes []model.NodeID `cbor:"1,keyasint"`
}

// keyReply is a server's answer to a keyQuery. It has no keys for nodes that the server does not know, or whose agents
// are revoked.
type keyReply struct {
	State uint64    `cbor:"1,keyasint"` // index of the server's state
	Keys  []nodeKey `cbor:"2,keyasint"`
}

const (
	maxWantedKeys = 1024        // nodes in one question; bounded, because anyone with the gossip key can invent nodes
	askKeysEvery  = time.Second // the shortest time between two questions
	askKeysLimit  = time.Second
)

func newKeyring() *keyring {
	return &keyring{wake: make(chan struct{}, 1), wanted: map[model.NodeID]bool{}, known: map[model.NodeID]learnedKey{}}
}

// get returns a registration that was learned from a state newer than index. If there is none, it returns false, and
// run will ask the other servers, unless maxWantedKeys nodes are waiting already.
func (k *keyring) get(n nodeEpoch, index uint64) (key nodeKey, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if l, known := k.known[n.Node]; known && l.Epoch == n.Epoch && l.index > index {
		return l.nodeKey, true
	}
	if len(k.wanted) < maxWantedKeys {
		k.wanted[n.Node] = true
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	return key, false
}

// learn stores the answer of another server. own is the index of this server's state. learn drops all registrations
// from states that are not newer than own.
func (k *keyring) learn(r keyReply, own uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for id, l := range k.known {
		if l.index <= own {
			delete(k.known, id)
		}
	}
	for _, key := range r.Keys {
		if r.State > own && r.State > k.known[key.Node].index {
			k.known[key.Node] = learnedKey{key, r.State}
		}
	}
}

func (k *keyring) run(ctx context.Context, ask func(context.Context, []model.NodeID)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.wake:
		}
		k.mu.Lock()
		var nodes []model.NodeID
		for id := range k.wanted {
			nodes = append(nodes, id)
		}
		clear(k.wanted)
		k.mu.Unlock()
		ask(ctx, nodes)
		pause(ctx, askKeysEvery)
	}
}

func (s *Server) askKeys(ctx context.Context, nodes []model.NodeID) {
	ctx, cancel := context.WithTimeout(ctx, askKeysLimit)
	defer cancel()
	var wg sync.WaitGroup
	for _, server := range s.servers() {
		id := model.ServerID(server.ID)
		if id == s.dir.id {
			continue
		}
		wg.Go(func() {
			if reply, err := askPeer[keyReply](ctx, s, s.addressOf(id), questionKeys, keyQuery{nodes}); err == nil {
				s.seen.keys.learn(reply, s.cfg.Machine.State().Index)
			}
		})
	}
	wg.Wait()
}

func (s *Server) answerKeys(q keyQuery) keyReply {
	state := s.cfg.Machine.State()
	out := keyReply{State: state.Index}
	for _, id := range q.Nodes[:min(len(q.Nodes), maxWantedKeys)] {
		if n, ok := state.Nodes.Get(id); ok && !state.AgentRevoked(n.Name) {
			out.Keys = append(out.Keys, nodeKey{id, n.Agent.Epoch, n.Agent.Key, n.Health == model.HealthOffline})
		}
	}
	return out
}

// registration returns a node's registration from this server's state, or from another server's newer state. ok is
// false if the registration is unknown, if the node's agent is revoked, or if the node is known to have registered
// again since.
func (s *Server) registration(of nodeEpoch) (key nodeKey, ok bool) {
	state := s.cfg.Machine.State()
	n, known := state.Nodes.Get(of.Node)
	switch {
	case known && state.AgentRevoked(n.Name):
		return nodeKey{}, false
	case known && n.Agent.Epoch == of.Epoch:
		return nodeKey{of.Node, of.Epoch, n.Agent.Key, n.Health == model.HealthOffline}, true
	case known && n.Agent.Epoch > of.Epoch:
		return nodeKey{}, false
	}
	return s.seen.keys.get(of, state.Index)
}

// nodeKey returns the key that must sign the heartbeats of a registration. ok is false unless the registration is the
// node's last known one.
func (s *Server) nodeKey(of nodeEpoch) (key []byte, ok bool) {
	n, ok := s.registration(of)
	return n.Key, ok && len(n.Key) > 0 // a revocation removes the key
}

func (s *Server) nodeOffline(of nodeEpoch) bool {
	n, ok := s.registration(of)
	return ok && n.Offline
}
