package cluster

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Age is how long a server has not heard from a node.
type Age struct {
	Since time.Duration // since the server last heard the node; if it never did, since it began to listen
	Heard bool          // whether the server has ever heard the node
}

// HeartsConfig configures Hearts. All fields are required.
type HeartsConfig struct {
	Self    model.ServerID
	NodeKey func(nodeEpoch) (key []byte, ok bool)        // ok is false unless this is the node's last known registration
	Offline func(nodeEpoch) bool                         // reports whether the servers consider this registration offline
	Answer  func(node, address string, msg []byte) error // sends a message that may get lost; address is beat.Address
	Alive   func(node string)                            // called for every beat that counts for the node's age
	Voters  func() electorate                            // must not block
	Logger  hclog.Logger
}

// Hearts is a server's end of the heartbeats. It knows when this server last heard each node. It is safe for concurrent
// use.
//
// A beat counts only if it is signed with the node's key, carries the random number of this process, and has a larger
// sequence number than the last beat. So nobody can make a dead node look alive with the gossip key or with copies of
// old packets, even if this server has just started.
type Hearts struct {
	cfg   HeartsConfig
	codec codec
	echo  uint64
	began time.Time

	mu    sync.Mutex
	nodes map[model.NodeID]heart
}

// signer identifies the registration that signed a beat. The key is part of it. A recovery may not know of
// registrations in the state that it replaces, and give their epochs again, but never their keys.
type signer struct {
	key   string
	epoch uint64
}

type heart struct {
	at      time.Time // when the node was last heard; zero if never
	of      signer    // of the last beat; seq and facts start again with each signer
	seq     uint64
	facts   uint64
	deaf    time.Duration // beat.Unanswered of the last beat
	givenUp uint64        // beats of this epoch renew no lease; 0 if no epoch is given up
	cpu     uint32        // beat.CPU and beat.Memory of the last beat, at used
	memory  uint32
	used    time.Time
}

// NewHearts returns a Hearts that begins to listen now. It fails only if the system provides no random numbers.
func NewHearts(cfg HeartsConfig) (*Hearts, error) {
	var seed [8]byte
	if _, err := rand.Read(seed[:]); err != nil {
		return nil, fmt.Errorf("draw the number of this process: %w", err)
	}
	return &Hearts{
		cfg: cfg, codec: newCodec(), echo: binary.BigEndian.Uint64(seed[:]) | 1, began: time.Now(),
		nodes: map[model.NodeID]heart{},
	}, nil
}

// Receive handles a gossip message. It answers a beat that is signed with the node's key, unless the beat is a replay.
// It drops everything else, because anyone with the gossip key can send messages. It does not block.
func (h *Hearts) Receive(msg []byte) {
	var b beat
	var key []byte
	err := h.codec.open(msg, kindBeat, &b, func() (_ []byte, ok bool) {
		key, ok = h.cfg.NodeKey(nodeEpoch{b.Node, b.Epoch})
		return key, ok
	})
	if err != nil || b.To != h.cfg.Self {
		h.cfg.Logger.Trace("dropped a heartbeat", "node", b.Node, "epoch", b.Epoch, "error", err)
		return
	}
	v := h.take(b, key)
	if v == 0 {
		return
	}
	if v != verdictEcho {
		h.cfg.Alive(string(b.Node))
	}
	h.answer(b, v, key)
}

// take records a beat that is signed with key, and returns the verdict on it. It returns 0 for a replay, which gets no
// answer. If the beat does not carry the number of this process, take records nothing and returns verdictEcho.
func (h *Hearts) take(b beat, key []byte) verdict {
	offline := h.cfg.Offline(nodeEpoch{b.Node, b.Epoch})
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.Echo != h.echo {
		return verdictEcho
	}
	n, of := h.nodes[b.Node], signer{string(key), b.Epoch}
	switch {
	case of == n.of && b.Seq <= n.seq:
		return 0
	case of != n.of: // it is a new registration, because NodeKey accepts only the node's last one
		n.of, n.facts = of, 0
	}
	n.at, n.seq, n.facts, n.deaf = time.Now(), b.Seq, max(n.facts, b.Facts), time.Duration(b.Unanswered)*time.Millisecond
	n.cpu, n.memory, n.used = b.CPU, b.Memory, n.at
	h.nodes[b.Node] = n
	if n.givenUp == b.Epoch || offline {
		return verdictGivenUp
	}
	return verdictHeard
}

func (h *Hearts) answer(b beat, v verdict, key []byte) {
	msg, err := h.codec.seal(kindAnswer, beatAnswer{
		From: h.cfg.Self, Node: b.Node, Epoch: b.Epoch, Seq: b.Seq, Echo: h.echo, Verdict: v, electorate: h.cfg.Voters(),
	}, key)
	if err == nil {
		err = h.cfg.Answer(string(b.Node), b.Address, msg)
	}
	if err != nil {
		h.cfg.Logger.Trace("can't answer a heartbeat", "node", b.Node, "error", err)
	}
}

// Heard records that the node's agent made a request over an authenticated connection. The request counts for the
// node's age like a beat, but renews no lease.
func (h *Hearts) Heard(node model.NodeID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes[node]
	n.at = time.Now()
	h.nodes[node] = n
}

// Age returns how long this server has not heard from the node.
func (h *Hearts) Age(node model.NodeID) Age {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes[node]
	if n.at.IsZero() {
		return Age{Since: time.Since(h.began)}
	}
	return Age{Since: time.Since(n.at), Heard: true}
}

// Sign is what Hearts knows of one node.
type Sign struct {
	Age
	Facts uint64        // the newest generation of facts in heartbeats of the node's current registration
	Deaf  time.Duration // how long no server had answered the node's agent when it sent its last heartbeat
}

// Signs calls visit for each of the nodes, in order of id, with what Hearts knows of it. Signs holds h.mu meanwhile, so
// visit must return quickly and must not call methods of Hearts.
func (h *Hearts) Signs(nodes fsm.Table[model.NodeID, *fsm.Node], visit func(*fsm.Node, Sign)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	for _, node := range nodes.All() {
		visit(node, h.sign(node, now))
	}
}

// Sign returns what Hearts knows of one node.
func (h *Hearts) Sign(node *fsm.Node) Sign {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sign(node, time.Now())
}

// sign is Sign for callers that hold h.mu.
func (h *Hearts) sign(node *fsm.Node, now time.Time) Sign {
	n := h.nodes[node.ID]
	sign := Sign{Age: Age{Since: now.Sub(h.began)}}
	if !n.at.IsZero() {
		sign.Age = Age{Since: now.Sub(n.at), Heard: true}
	}
	if n.of.epoch == node.Agent.Epoch && n.of.key == string(node.Agent.Key) {
		sign.Facts, sign.Deaf = n.facts, n.deaf
	}
	return sign
}

// Use is what a node's machine used when it sent its last heartbeat.
type Use struct {
	CPU         int64 // thousandths of a core
	MemoryBytes int64
	Age         time.Duration // since the heartbeat
}

// setUse writes what the machine uses into a beat.
func (b *beat) setUse(cpu, memory int64, ok bool) {
	if ok {
		b.CPU = uint32(min(max(cpu, 0), math.MaxUint32-1)) + 1
		b.Memory = uint32(min(max(memory>>20, 0), math.MaxUint32-1)) + 1
	}
}

// Use returns what a node's machine uses. ok is false if its last heartbeat did not say so.
func (h *Hearts) Use(node model.NodeID) (use Use, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes[node]
	if n.used.IsZero() || n.cpu == 0 || n.memory == 0 {
		return Use{}, false
	}
	return Use{CPU: int64(n.cpu) - 1, MemoryBytes: (int64(n.memory) - 1) << 20, Age: time.Since(n.used)}, true
}

// Ages returns the Age of each of the nodes.
func (h *Hearts) Ages(nodes []model.NodeID) map[model.NodeID]Age {
	out := make(map[model.NodeID]Age, len(nodes))
	for _, id := range nodes {
		out[id] = h.Age(id)
	}
	return out
}

// GiveUp records that this server agreed to call this epoch of the node offline. Beats of the epoch still count for the
// node's age, but no longer renew the node's leases. Beats of a later registration renew them again.
func (h *Hearts) GiveUp(node model.NodeID, epoch uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := h.nodes[node]
	n.givenUp = epoch
	h.nodes[node] = n
}

// Retain forgets every node for which keep returns false.
func (h *Hearts) Retain(keep func(model.NodeID) bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id := range h.nodes {
		if !keep(id) {
			delete(h.nodes, id)
		}
	}
}

// Uptime returns the time since NewHearts.
func (h *Hearts) Uptime() time.Duration { return time.Since(h.began) }
