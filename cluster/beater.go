package cluster

import (
	"context"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/model"
)

// BeaterConfig configures a Beater.
type BeaterConfig struct {
	Node        model.NodeID
	BootID      string  // boot id of the kernel
	Incarnation string  // incarnation of the agent process
	Pool        Courier // usually a *Pool; only the Beater may call its Receive
	// Use returns what the machine uses: CPU in thousandths of a core, and memory in bytes. ok is false while it is not
	// known. It must not block. Optional.
	Use    func() (cpu, memory int64, ok bool)
	Logger hclog.Logger
}

// Courier carries heartbeats and their answers, and knows the servers. A Pool is a Courier, and documents the methods.
// A simulation of many agents in one process has its own Courier, with a single socket for all of them.
type Courier interface {
	Servers() []Member
	Address() string
	Send(name string, msg []byte) error
	Receive() <-chan []byte
}

// Beater sends an agent's heartbeats to every server that gossip knows, and computes how long the node's lease holds.
// It sends nothing before Register is called. A Beater is safe for concurrent use.
type Beater struct {
	cfg   BeaterConfig
	codec codec
	wake  chan struct{} // capacity 1; signaled when heartbeats must be sent at once

	mu      sync.Mutex
	reg     registration
	facts   uint64
	heeded  time.Time // when a server last answered a request of the agent
	servers map[model.ServerID]link
	voters  electorate  // voters of the newest configuration that this node knows
	gaveUp  chan uint64 // epochs that a server considers offline; capacity 1
}

// registration is what the agent got at the node's last registration. Later calls of SetInterval change only the field
// every.
type registration struct {
	key   []byte
	epoch uint64
	every time.Duration
}

// link is the state of an agent's heartbeats to one server.
type link struct {
	echo     uint64      // number of the server's process, as in its last answer
	seq      uint64      // number of the last heartbeat; it grows within an epoch
	sent     [8]sentBeat // ring of the last heartbeats; the index is seq modulo its length
	answered time.Time   // when the newest heartbeat that got verdictHeard was SENT
}

type sentBeat struct {
	seq uint64
	at  time.Time
}

// NewBeater returns a Beater. Its method Run sends the heartbeats.
func NewBeater(cfg BeaterConfig) *Beater {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	return &Beater{
		cfg: cfg, codec: newCodec(), wake: make(chan struct{}, 1), gaveUp: make(chan uint64, 1),
		servers: map[model.ServerID]link{},
	}
}

// Register begins a new epoch. From now on, heartbeats are sent once per interval and signed with key, which the
// servers chose.
func (b *Beater) Register(key []byte, epoch uint64, interval time.Duration) {
	b.mu.Lock()
	b.reg = registration{key: slices.Clone(key), epoch: epoch, every: interval}
	b.facts = 0
	for id, l := range b.servers {
		l.seq, l.sent = 0, [8]sentBeat{}
		b.servers[id] = l
	}
	b.mu.Unlock()
	b.kick()
}

// SetVoters sets the voters that the answer to a registration named. history is a model.History as a string, and index
// is the index of the raft configuration with these voters. SetVoters ignores a configuration that is not newer than
// the known configuration, or whose history this node does not follow.
func (b *Beater) SetVoters(history string, index uint64, voters []model.ServerID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hear(electorate{history, index, voters})
}

// hear takes over a configuration if it is newer than the known one. If its history replaces the known history, this
// node follows the new history from now on. If this node does not follow the history of the configuration, hear ignores
// the configuration and returns false. b.mu must be held.
func (b *Beater) hear(e electorate) bool {
	if e.History != b.voters.History {
		if e.History == "" { // the server was killed before it could note its cluster, so its configuration is ignored
			return true
		}
		was, _ := model.ParseHistory(b.voters.History)
		now, refusal := model.ParseHistory(e.History)
		if refusal != nil || was.Cluster != "" && !now.Replaces(was) {
			return false
		}
		b.voters = electorate{History: e.History} // after a recovery, configurations are numbered from the start
	}
	if e.Index > b.voters.Index {
		b.voters = e
	}
	return true
}

// SetInterval sets the time between heartbeats. If that changes the time, the next heartbeats are sent at once.
func (b *Beater) SetInterval(interval time.Duration) {
	b.mu.Lock()
	changed := b.reg.every != interval
	b.reg.every = interval
	b.mu.Unlock()
	if changed {
		b.kick()
	}
}

// SetFacts sets the newest facts generation of an epoch, which heartbeats carry from now on. SetFacts ignores an epoch
// other than the last registered one, because each epoch numbers its generations separately.
func (b *Beater) SetFacts(epoch, generation uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if epoch == b.reg.epoch {
		b.facts = max(b.facts, generation)
	}
}

// SetAnswered notes when a server last answered a request of the agent. Heartbeats carry the time since then.
func (b *Beater) SetAnswered(at time.Time) {
	b.mu.Lock()
	long := !b.heeded.IsZero() && at.Sub(b.heeded) > 2*b.reg.every
	b.heeded = at
	b.mu.Unlock()
	if long { // the servers may believe that this node gets no answers
		b.kick()
	}
}

// unanswered returns how many milliseconds ago a server last answered a request, or 0 if no server ever did. b.mu must
// be held.
func (b *Beater) unanswered() uint32 {
	if b.heeded.IsZero() {
		return 0
	}
	return uint32(min(max(0, time.Since(b.heeded).Milliseconds()), math.MaxUint32))
}

// GivenUp returns a channel that receives an epoch of this node when a server reports that it considers the epoch
// offline. The agent must then register again, unless it has already done so after another server's report of the same
// epoch.
func (b *Beater) GivenUp() <-chan uint64 { return b.gaveUp }

// LeaseUntil returns when a lease of the given length expires. The lease holds while a majority of the voters of the
// newest configuration have accepted heartbeats that were SENT at most that long ago. LeaseUntil returns the zero time
// if no majority has ever accepted heartbeats.
func (b *Beater) LeaseUntil(length time.Duration) time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var sent []time.Time
	for _, id := range b.voters.Voters {
		if l := b.servers[id]; !l.answered.IsZero() {
			sent = append(sent, l.answered)
		}
	}
	need := len(b.voters.Voters)/2 + 1
	if len(sent) < need {
		return time.Time{}
	}
	slices.SortFunc(sent, func(a, b time.Time) int { return b.Compare(a) })
	return sent[need-1].Add(length)
}

// Run sends heartbeats and processes the answers until ctx ends. Then it returns nil.
func (b *Beater) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case msg := <-b.cfg.Pool.Receive():
			b.receive(msg)
			continue
		case <-b.wake:
		case <-timer.C:
		}
		timer.Reset(b.beatAll())
	}
}

func (b *Beater) kick() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// beatAll sends a heartbeat to every server that gossip has ever seen, and returns the time until the next round. If
// the node has not registered, it sends nothing.
func (b *Beater) beatAll() (next time.Duration) {
	b.mu.Lock()
	reg := b.reg
	b.mu.Unlock()
	if len(reg.key) == 0 || reg.every <= 0 {
		return time.Hour
	}
	for _, m := range b.cfg.Pool.Servers() { // dead servers too: after a partition, heartbeats are the first sign of life
		b.beat(model.ServerID(m.Name))
	}
	return reg.every
}

func (b *Beater) beat(to model.ServerID) {
	b.mu.Lock()
	l := b.servers[to]
	l.seq++
	l.sent[l.seq%uint64(len(l.sent))] = sentBeat{l.seq, time.Now()}
	b.servers[to] = l
	key := b.reg.key
	body := beat{
		To: to, Node: b.cfg.Node, Epoch: b.reg.epoch, Seq: l.seq, Echo: l.echo,
		BootID: b.cfg.BootID, Incarnation: b.cfg.Incarnation, Facts: b.facts, Unanswered: b.unanswered(),
		Address: b.cfg.Pool.Address(),
	}
	b.mu.Unlock()
	if b.cfg.Use != nil {
		body.setUse(b.cfg.Use())
	}
	msg, err := b.codec.seal(kindBeat, body, key)
	if err == nil {
		err = b.cfg.Pool.Send(string(to), msg)
	}
	if err != nil {
		b.cfg.Logger.Debug("can't send a heartbeat", "server", to, "error", err)
	}
}

// receive processes an answer. It drops an answer that is not signed with this node's key, is of another epoch, or
// matches no heartbeat.
func (b *Beater) receive(msg []byte) {
	var a beatAnswer
	b.mu.Lock()
	key, epoch := b.reg.key, b.reg.epoch
	b.mu.Unlock()
	if err := b.codec.open(msg, kindAnswer, &a, func() ([]byte, bool) {
		return key, true
	}); err != nil || a.Node != b.cfg.Node || a.Epoch != epoch {
		b.cfg.Logger.Trace("dropped an answer", "server", a.From, "error", err)
		return
	}
	switch b.book(a) {
	case verdictEcho:
		b.beat(a.From)
	case verdictGivenUp:
		select {
		case b.gaveUp <- epoch:
		default:
		}
	}
}

// book notes an answer and returns the verdict in it. book returns 0 if no heartbeat waits for this answer, or if this
// node does not follow the history of the answering server.
func (b *Beater) book(a beatAnswer) verdict {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.servers[a.From]
	slot := &l.sent[a.Seq%uint64(len(l.sent))]
	if slot.seq != a.Seq || a.Seq == 0 {
		return 0
	}
	sent := slot.at
	*slot = sentBeat{}
	if !b.hear(a.electorate) {
		return 0
	}
	l.echo = a.Echo
	if a.Verdict == verdictHeard && sent.After(l.answered) {
		l.answered = sent
	}
	b.servers[a.From] = l
	return a.Verdict
}
