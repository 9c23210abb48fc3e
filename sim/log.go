package sim

import (
	"math/rand/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// digestEvery is the number of entries from one comparison of the servers' whole states to the next. Once two states
// differ, they stay different, so a later comparison still finds the difference. The results of every entry are
// compared too.
const digestEvery = 16

// proposal is an entry that was proposed and is not committed yet.
type proposal struct {
	entry fsm.Entry
	data  []byte
	basis *fsm.State    // state on which the leader decided; nil if the entry is stale or not a leader's decision
	done  func(outcome) // called when the entry is committed or the leadership ends, whichever is first; may be nil
}

// outcome is what the proposer learns. known is false if the leader lost its leadership before the entry was committed.
// The next leader may still commit the entry.
type outcome struct {
	known   bool
	index   uint64
	results []fsm.Result
}

// logged is one committed entry. data is nil for the entry that a leader writes when its term begins.
type logged struct {
	term    uint64
	data    []byte
	results []fsm.Result
	digest  string // digest of the state after this entry; empty unless the index is a multiple of digestEvery
}

// log is the replicated log as raft keeps it: the committed entries, the leader's entries that are not committed yet,
// and the term.
type log struct {
	w               *world
	term            uint64
	leader          int // index of the server that leads; -1 means none
	entries         []logged
	pending         []*proposal // entries in the leader's log that are not committed yet
	servers         []*server
	first           fsm.State // state after the last committed entry, from the server that first applied it
	isolated        bool      // the leader does not reach the other servers
	strikeOnPropose func()    // a fault that strikes just after the next entry is proposed; nil if none waits
}

func newLog(w *world) *log {
	l := &log{w: w, leader: -1, first: fsm.NewState()}
	for i := range servers {
		l.servers = append(l.servers, newServer(w, i))
	}
	return l
}

// propose appends an entry to the leader's log. The entry is committed a while later, after all earlier ones, unless a
// failover loses it. propose returns false if there is no leader, or if the entry can't be encoded.
func (l *log) propose(p *proposal) bool {
	if l.leader < 0 {
		return false
	}
	data, err := fsm.EncodeEntry(p.entry)
	if err != nil {
		l.w.fail("", "an entry can't be encoded: %v", err)
		return false
	}
	p.data = data
	l.w.trace.bytes(data)
	l.pending = append(l.pending, p)
	l.w.after(l.commitDelay(), func() { l.commit(p) })
	if strike := l.strikeOnPropose; strike != nil {
		l.strikeOnPropose = nil
		l.w.after(between(l.w.chance, 0, 8), strike)
	}
	return true
}

// slowCommit is the longest time that a commit can take, in ms.
const slowCommit = 3000

func (l *log) commitDelay() model.Duration {
	r := l.w.chance
	switch {
	case r.IntN(200) == 0:
		return between(r, 200, slowCommit)
	case r.IntN(6) == 0:
		return between(r, 20, 300)
	}
	return between(r, 1, 15)
}

// commit commits all pending entries up to p. It does nothing if the leader is isolated, or if there was a failover
// after p was proposed.
func (l *log) commit(p *proposal) {
	if l.isolated {
		return
	}
	for i, other := range l.pending {
		if other == p {
			ready := l.pending[:i+1]
			l.pending = l.pending[i+1:]
			for _, one := range ready {
				l.land(one, l.term)
			}
			l.spread()
			return
		}
	}
}

// land commits one entry: the leader applies it, the judges check it, and the proposer learns the outcome.
func (l *log) land(p *proposal, term uint64) {
	if l.w.failure != nil {
		return
	}
	l.entries = append(l.entries, logged{term: term, data: p.data})
	index := uint64(len(l.entries))
	before := l.first
	results := l.servers[l.leader].apply(index)
	if l.w.failure != nil {
		return
	}
	l.first = l.servers[l.leader].state()
	l.entries[index-1].results = results
	if index%digestEvery == 0 {
		l.entries[index-1].digest = fsm.Digest(l.first)
	}
	l.w.step(CountEntries)
	l.w.judge.entry(&committed{
		index: index, term: term, entry: p.entry, results: results, basis: p.basis, before: &before, after: &l.first,
	})
	if p.done != nil {
		p.done(outcome{known: true, index: index, results: results})
	}
	if l.w.lead != nil {
		l.w.lead.poke()
	}
}

// spread makes the other servers apply the committed entries soon, and answers the agents that poll the leader.
func (l *log) spread() {
	for _, s := range l.servers {
		s.catchUp()
	}
	l.w.net.published(l.leader)
}

// elect begins the term of a new leader. The server first applies all committed entries, and then appends the entry
// that begins the term. The leader's cluster time starts at base, or at the time of the last entry if that is later.
func (l *log) elect(id int, base model.Time) {
	l.term++
	l.leader = id
	s := l.servers[id]
	s.applyAll()
	l.first = s.state()
	l.entries = append(l.entries, logged{term: l.term})
	s.applied = uint64(len(l.entries))
	l.w.trace.note(l.w.now, 'e', uint64(id), l.term)
	l.w.trace.say("server s%d leads term %d", id+1, l.term)
	l.w.lead = newLeader(l.w, id, l.term, max(base, l.first.Now))
	l.w.lead.poke()
	l.spread()
}

// failover ends the current leadership, if there is one. A random number of the uncommitted entries survives, the
// oldest first, and the others are lost. After 0.3 to 4 s a running server other than spare becomes the leader. If
// spare is negative, any running server may become it.
func (l *log) failover(r *rand.Rand, spare int) {
	if l.leader < 0 {
		return
	}
	w, old := l.w, l.leader
	left := l.pending
	kept := r.IntN(len(left) + 1)
	if l.isolated && r.IntN(3) > 0 {
		kept = 0 // an isolated leader's entries reached no other server
	}
	w.step(CountFailovers)
	w.counts[CountSurvivors] += kept
	w.counts[CountLostEntries] += len(left) - kept
	w.trace.say("failover from s%d: %d of %d entries survive", old+1, kept, len(left))
	term, clock, stale := l.term, w.lead.clock(), w.lead.undecided()
	w.lead = nil
	l.leader, l.pending, l.isolated = -1, nil, false
	for _, p := range left {
		if p.done != nil {
			p.done(outcome{})
		}
	}
	stopped := w.now
	loss := between(r, 0, 1000)
	w.after(between(r, 300, 4000), func() {
		next := l.candidate(r, spare)
		base := clock.Add(w.now.Sub(stopped) - loss)
		if r.IntN(10) == 0 {
			base = 0 // the new leader never heard the cluster time of the old one
		}
		l.succeed(next, term, left[:kept], base)
		if len(stale) > 0 && r.IntN(2) == 0 { // a decision of the old leader arrives in the new term and must be refused
			l.propose(&proposal{entry: stale[0]})
		}
	})
}

// succeed commits the surviving entries in their old term, and then makes the server id the leader. It does nothing if
// there is a leader already.
func (l *log) succeed(id int, term uint64, survivors []*proposal, base model.Time) {
	if l.leader >= 0 || l.w.failure != nil {
		return
	}
	s := l.servers[id]
	s.applyAll()
	l.first = s.state()
	l.leader = id
	for _, p := range survivors {
		p.done = nil
		l.land(p, term)
	}
	l.leader = -1
	if l.w.failure == nil {
		l.elect(id, base)
	}
}

// candidate draws a running server other than spare.
func (l *log) candidate(r *rand.Rand, spare int) int {
	for {
		id := r.IntN(servers)
		if id != spare && l.servers[id].up {
			return id
		}
	}
}
