package cluster

import (
	"cmp"
	"context"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
)

const (
	// checkpointEvery is the distance between checkpoints, in log entries. While entries keep arriving, the newest states
	// of the servers have different indexes. So each server keeps its state just before each multiple of checkpointEvery.
	// These states can be compared.
	checkpointEvery = 512
	checkpointsKept = 3 // each may take some 50 MB while 100,000 instances are placed
	// offersKept limits the states that a server keeps because it reported them to other servers. Each is kept for
	// offerFor, so that the other servers can ask for its digest.
	offersKept = 16
	offerFor   = 30 * time.Second
	// digestsKept is how many states' digests are remembered, because all servers ask for the same digests at about the
	// same time. Each is remembered only for digestFor. The next comparison must read the whole state again, so that it
	// detects damage in memory.
	digestsKept = 4
	digestFor   = time.Minute
)

// pastStates keeps older states that other servers may ask about. A State is a value, so an older state only needs
// memory for the rows that changed after it.
type pastStates struct {
	mu          sync.Mutex
	checkpoints []fsm.State // oldest first
	offers      []offer     // oldest first
}

type offer struct {
	state fsm.State
	at    time.Time
}

// passed is called before an entry is applied, with the state until then and the entry's index. It keeps the state if a
// multiple of checkpointEvery is above the state's index and at most the entry's index. All servers apply the same
// entries, so they keep the same states.
func (p *pastStates) passed(before fsm.State, index uint64) {
	if before.Index == 0 || before.Index/checkpointEvery == index/checkpointEvery {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checkpoints = append(p.checkpoints, before)
	p.checkpoints = slices.Delete(p.checkpoints, 0, max(0, len(p.checkpoints)-checkpointsKept))
}

// clear forgets every state. It is called after a restore, because the restored state does not continue the older ones.
func (p *pastStates) clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checkpoints, p.offers = nil, nil
}

// settle forgets the checkpoints of key's incarnation that are not newer than key. It is called when all voters have
// the same state under key.
func (p *pastStates) settle(key stateKey) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.checkpoints = slices.DeleteFunc(p.checkpoints, func(s fsm.State) bool {
		return s.Incarnation == key.Incarnation && s.Index <= key.Index
	})
}

// hold returns all kept states and the current one, oldest first. It keeps the current one for offerFor, because other
// servers may now ask for its digest.
func (p *pastStates) hold(current fsm.State) []fsm.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.offers = slices.DeleteFunc(p.offers, func(o offer) bool {
		return now.Sub(o.at) > offerFor || keyOf(o.state) == keyOf(current)
	})
	p.offers = append(p.offers, offer{current, now})
	p.offers = slices.Delete(p.offers, 0, max(0, len(p.offers)-offersKept))
	all := slices.Clone(p.checkpoints)
	for _, o := range p.offers {
		if !slices.ContainsFunc(all, func(s fsm.State) bool { return keyOf(s) == keyOf(o.state) }) {
			all = append(all, o.state)
		}
	}
	slices.SortStableFunc(all, func(a, b fsm.State) int { return compareKeys(keyOf(a), keyOf(b)) })
	return all
}

func compareKeys(a, b stateKey) int {
	return cmp.Or(cmp.Compare(a.Incarnation, b.Incarnation), cmp.Compare(a.Index, b.Index))
}

// find returns the state under a key, which may be the current one or a kept one. It returns false if this server does
// not have the state.
func (p *pastStates) find(key stateKey, current fsm.State) (fsm.State, bool) {
	if keyOf(current) == key {
		return current, true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.checkpoints {
		if keyOf(s) == key {
			return s, true
		}
	}
	for _, o := range p.offers {
		if keyOf(o.state) == key {
			return o.state, true
		}
	}
	return fsm.State{}, false
}

type stateSums struct {
	digest string
	tables []fsm.TableDigest
	// contradiction is the text of fsm.Check's error. It is empty if the check passed or was not requested. Digests only
	// cover rows, so states with equal digests may differ in what is derived from the rows.
	contradiction string
}

// digester computes digests, one state at a time. A large state takes a second of one core, so concurrent callers with
// the same state share one computation. The log is still applied meanwhile.
type digester struct {
	slot  chan struct{} // a semaphore with capacity 1
	mu    sync.Mutex
	known []knownSums // oldest first
}

type knownSums struct {
	key  stateKey
	at   time.Time
	sums stateSums
}

func newDigester() *digester { return &digester{slot: make(chan struct{}, 1)} }

// of returns the digests of a state. It waits until no other digest is being computed, and fails if ctx ends while it
// waits. After that it ignores ctx and blocks until the digests are computed.
func (d *digester) of(ctx context.Context, s fsm.State) (stateSums, error) {
	select {
	case d.slot <- struct{}{}:
	case <-ctx.Done():
		return stateSums{}, context.Cause(ctx)
	}
	defer func() { <-d.slot }()
	key, began := keyOf(s), time.Now()
	if sums, ok := d.recall(key); ok {
		return sums, nil
	}
	digest, tables := fsm.Digests(s)
	sums := stateSums{digest: digest, tables: tables}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = append(d.known, knownSums{key, began, sums})
	d.known = slices.Delete(d.known, 0, max(0, len(d.known)-digestsKept))
	return sums, nil
}

func (d *digester) recall(key stateKey) (stateSums, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range d.known {
		if k.key == key && time.Since(k.at) <= digestFor {
			return k.sums, true
		}
	}
	return stateSums{}, false
}

// clear forgets every digest. It is called after a restore, because a key may now belong to another state.
func (d *digester) clear() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.known = nil
}

// comparedFSM is the FSM that raft uses. It wraps machineFSM, keeps states for comparisons, and requests comparisons.
type comparedFSM struct {
	*machineFSM
	c *comparer
}

// ApplyBatch implements raft.BatchingFSM.
func (f comparedFSM) ApplyBatch(logs []*raft.Log) []any {
	answers := make([]any, 0, len(logs))
	for len(logs) > 0 {
		n := batch(logs)
		if first := slices.IndexFunc(logs[:n], func(l *raft.Log) bool { return l.Type == raft.LogCommand }); first >= 0 {
			f.c.past.passed(f.machine.State(), logs[first].Index)
		}
		answers, logs = append(answers, f.machineFSM.ApplyBatch(logs[:n])...), logs[n:]
	}
	return answers
}

// Snapshot implements raft.FSM. It also requests a comparison, because the snapshot makes the state durable and raft
// may then remove the entries that led to the state.
func (f comparedFSM) Snapshot() (raft.FSMSnapshot, error) {
	f.c.later()
	return f.machineFSM.Snapshot()
}

// Restore implements raft.FSM.
func (f comparedFSM) Restore(r io.ReadCloser) error {
	if err := f.machineFSM.Restore(r); err != nil {
		return err
	}
	f.c.past.clear()
	f.c.digests.clear()
	f.c.soon()
	return nil
}
