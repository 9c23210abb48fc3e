package series

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// What is kept. With all of it, a Recorder has 3.6 MB of samples.
const (
	Step = 10 * time.Second // between two samples of the cluster and the server

	jobsKept  = 50
	nodesKept = 200
	marksKept = 200
)

var (
	fixedLayout = layout{step: Step, width: columns, block: 60, blocks: 145}               // a day
	jobLayout   = layout{step: time.Minute, width: len(ofJob), block: 60, blocks: 25}      // a day
	nodeLayout  = layout{step: 2 * time.Minute, width: len(ofNode), block: 30, blocks: 13} // 12 hours
)

const (
	staleAfter = 15 * time.Second // a server without contact to a leader for so long knows the state no more

	blockedShare = 100              // looks for what blocks drains take at most this part of the time
	blockedGood  = 30 * time.Second // how long the result of such a look counts
)

// Peer is another server.
type Peer struct {
	Name, Address string
}

// Local has the figures of a server itself, by its methods Set.
type Local struct {
	Leads          bool
	Applied, Lag   uint64
	Silence        time.Duration
	Apply, Sync    Times
	Heap, Resident int64 // bytes; 0: not known
	Goroutines     int
	FreeBytes      int64 // on its disk; 0: not known
}

// Config is what a Recorder needs. Its functions must not block, but Ask may.
type Config struct {
	Server string
	State  func() *fsm.State
	Wall   func() time.Time
	// Silence returns for how long this server has not known that its state is current, and false if it never was.
	Silence func() (time.Duration, bool)
	Local   func() Local
	// Use returns what the machine of a node uses, and false if it never said so.
	Use func(model.NodeID) (Use, bool)
	// Blocked returns how many instances running drains can't stop. It may take as long as a decision.
	Blocked func() int
	// Peers returns the other servers, and Ask asks one of them a question of package series.
	Peers func() []Peer
	Ask   func(ctx context.Context, address, question string, body []byte) ([]byte, error)
	Log   hclog.Logger // default: nothing is logged
}

// Recorder keeps the series of one server. Safe for concurrent use.
type Recorder struct {
	cfg Config

	mu     sync.Mutex
	fixed  ring
	jobs   board[model.JobName]
	nodes  board[model.NodeID]
	marks  []mark // by term
	newest int64  // slot of the last sample; 0: none

	// Only the goroutine of Run uses what follows.
	short   shortage
	applied uint64 // of the last sample, at lastSlot
	last    int64
	looked  look
	missing int64 // the first slot whose replicated values a peer may know; 0: none
	gap     int64 // the first slot without replicated values since the last question to peers; 0: none
}

// mark is an election.
type mark struct {
	At     int64  `cbor:"1,keyasint"` // Unix ms
	Term   uint64 `cbor:"2,keyasint"`
	Server string `cbor:"3,keyasint"`
}

// look is the last look for what blocks drains.
type look struct {
	at     time.Time
	took   time.Duration
	result int
}

// New returns a Recorder that has nothing yet.
func New(cfg Config) *Recorder {
	if cfg.Log == nil {
		cfg.Log = hclog.NewNullLogger()
	}
	return &Recorder{cfg: cfg, fixed: newRing(fixedLayout), jobs: newBoard[model.JobName](jobLayout, jobsKept),
		nodes: newBoard[model.NodeID](nodeLayout, nodesKept)}
}

// Run samples at each multiple of Step until ctx ends, and then returns nil. At first, and after a time in which the
// server did not know the state, it asks the other servers for what it lacks.
func (r *Recorder) Run(ctx context.Context) error {
	r.missing = max(1, fixedLayout.slot(r.cfg.Wall())-fixedLayout.size())
	var filling sync.WaitGroup // asks other servers, while samples go on
	defer filling.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	filled := make(chan bool, 1)
	busy := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case done := <-filled:
			if busy = false; done {
				r.missing = r.gap
			}
			continue
		case <-timer.C:
		}
		if since := r.missing; r.sample() && since != 0 && !busy {
			busy, r.gap = true, 0
			filling.Go(func() { filled <- r.fill(ctx, since) })
		}
		at := r.cfg.Wall()
		timer.Reset(fixedLayout.begin(fixedLayout.slot(at) + 1).Sub(at))
	}
}

// sample takes one sample. It returns whether the replicated state is known.
func (r *Recorder) sample() (known bool) {
	wall := r.cfg.Wall()
	slot := fixedLayout.slot(wall)
	silence, ever := r.cfg.Silence()
	known = ever && silence < staleAfter
	s := emptySample()
	r.ofServer(&s, slot)
	state := r.cfg.State()
	if known {
		s.ofState(state, r.cfg.Use)
		r.short.look(&s, state, slot, Step)
		s[blocked] = r.lookForBlocked(&s, wall)
	} else {
		r.short = shortage{}
		r.missing, r.gap = cmp.Or(r.missing, slot), cmp.Or(r.gap, slot)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for column, v := range s {
		r.fixed.set(slot, column, v)
	}
	r.newest = max(r.newest, slot)
	if !known {
		return false
	}
	if state.Leader.Term != 0 {
		r.addMark(mark{At: wall.UnixMilli(), Term: state.Leader.Term, Server: state.Leader.Name})
	}
	if r.last == 0 || jobLayout.slot(wall) != jobLayout.slot(fixedLayout.begin(r.last)) {
		r.sampleJobs(state, wall)
	}
	r.sampleNodes(state, wall)
	r.last = slot
	return true
}

// ofServer fills in the figures of this server.
func (r *Recorder) ofServer(s *sample, slot int64) {
	l := r.cfg.Local()
	s[raftLeads] = 0
	if l.Leads {
		s[raftLeads] = 1
	}
	if passed := slot - r.lastServer(); passed > 0 && r.applied > 0 && l.Applied >= r.applied {
		s[raftEntries] = float32(float64(l.Applied-r.applied) / (float64(passed) * Step.Seconds()))
	}
	r.applied = l.Applied
	s[raftLag], s[raftSilence] = float32(l.Lag), float32(l.Silence.Seconds())
	s[applyMean], s[applyMost] = l.Apply.values()
	s[syncMean], s[syncMost] = l.Sync.values()
	s[serverGoroutines] = float32(l.Goroutines)
	for column, bytes := range map[int]int64{serverHeap: l.Heap, serverMemory: l.Resident, serverDisk: l.FreeBytes} {
		if bytes > 0 {
			s[column] = float32(bytes)
		}
	}
}

// lastServer returns the slot of the last sample.
func (r *Recorder) lastServer() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.newest
}

// lookForBlocked returns how many instances drains can't stop. While no drain runs that is 0. Otherwise it looks no
// more often than blockedShare allows; meanwhile the last result counts, but not for long.
func (r *Recorder) lookForBlocked(s *sample, wall time.Time) float32 {
	if s[drainsRunning] == 0 {
		r.looked = look{}
		return 0
	}
	if since := wall.Sub(r.looked.at); since >= blockedShare*r.looked.took || since < 0 {
		began := time.Now()
		r.looked = look{result: r.cfg.Blocked(), at: wall}
		r.looked.took = time.Since(began)
	} else if since >= blockedGood {
		return unknown()
	}
	return float32(r.looked.result)
}

// sampleJobs takes a sample of the largest jobs. r.mu must be held.
func (r *Recorder) sampleJobs(state *fsm.State, wall time.Time) {
	totals := jobTotals(state)
	sizes := make(map[model.JobName]int, len(totals))
	for name, n := range totals {
		sizes[name] = n[0] + n[1]
	}
	r.jobs.keep(sizes)
	slot := jobLayout.slot(wall)
	for name, ring := range r.jobs.rings {
		for column, v := range totals[name] {
			ring.set(slot, column, float32(v))
		}
	}
}

// sampleNodes takes a sample of the nodes that are kept, once a step. r.mu must be held.
func (r *Recorder) sampleNodes(state *fsm.State, wall time.Time) {
	slot := nodeLayout.slot(wall)
	if r.last != 0 && slot == nodeLayout.slot(fixedLayout.begin(r.last)) {
		return
	}
	sizes := make(map[model.NodeID]int, nodesKept)
	for id := range r.nodes.rings {
		if state.Nodes.Has(id) {
			sizes[id] = 0
		}
	}
	for id := range state.Nodes.All() {
		if len(sizes) >= nodesKept {
			break
		}
		sizes[id] = 0
	}
	r.nodes.keep(sizes)
	for id, ring := range r.nodes.rings {
		n, ok := state.Nodes.Get(id)
		if !ok {
			continue
		}
		ring.set(slot, 0, float32(n.Placed.CPU))
		ring.set(slot, 2, float32(n.Placed.MemoryBytes))
		if u, ok := r.cfg.Use(id); ok && u.Age < freshUse {
			ring.set(slot, 1, float32(u.CPU))
			ring.set(slot, 3, float32(u.MemoryBytes))
		}
	}
}

// addMark notes an election, at the earliest time that is known. r.mu must be held.
func (r *Recorder) addMark(m mark) {
	at, found := slices.BinarySearchFunc(r.marks, m.Term, func(one mark, term uint64) int {
		switch {
		case one.Term < term:
			return -1
		case one.Term > term:
			return 1
		}
		return 0
	})
	if found {
		r.marks[at].At = min(r.marks[at].At, m.At)
		return
	}
	r.marks = slices.Insert(r.marks, at, m)
	if extra := len(r.marks) - marksKept; extra > 0 {
		r.marks = slices.Delete(r.marks, 0, extra)
	}
}

// Bytes returns how much memory the samples take.
func (r *Recorder) Bytes() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fixed.bytes() + r.jobs.bytes() + r.nodes.bytes()
}
