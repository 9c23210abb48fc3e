package cluster

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/model"
)

const (
	tickEvery   = time.Second
	tickTimeout = time.Second
	// A leader waits for the clocks of a majority before it writes that it leads, but at most for this many rounds of
	// ticks.
	announceRound = 5
	lagPatience   = 30 * time.Second // how long a server may answer but lag before the lag is logged
)

// followers is what the leader knows of the other servers from their answers to its ticks.
type followers struct {
	mu    sync.Mutex
	all   map[model.ServerID]follower
	began time.Time // when the ticks of this term began
}

type follower struct {
	reply    tickReply // the last reply
	at       time.Time // when the last reply arrived
	shown    time.Time // the server's wall clock; zero means unknown
	shownAt  time.Time // when its clock showed that
	healthy  time.Time // since when the server has answered with a lag of at most maxLogLag; otherwise zero
	lagging  time.Time // since when the server has answered with a lag above maxLogLag; otherwise zero
	reported bool      // whether the present lag was logged
}

// note records the outcome of one tick. reply is nil if there was no answer. report is true if the server's lag should
// be logged now.
func (f *followers) note(id model.ServerID, reply *tickReply, lastIndex uint64) (report bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == nil {
		f.all = map[model.ServerID]follower{}
	}
	was := f.all[id]
	now := time.Now()
	switch {
	case reply == nil:
		was.healthy, was.lagging = time.Time{}, time.Time{}
	case reply.LastIndex+maxLogLag < lastIndex:
		was.reply, was.at, was.healthy = *reply, now, time.Time{}
		if was.lagging.IsZero() {
			was.lagging, was.reported = now, false
		}
		report = !was.reported && now.Sub(was.lagging) >= lagPatience
		was.reported = was.reported || report
	default:
		was.reply, was.at, was.lagging = *reply, now, time.Time{}
		if was.healthy.IsZero() {
			was.healthy = now
		}
	}
	f.all[id] = was
	return report
}

func (f *followers) get(id model.ServerID) follower {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all[id]
}

// clear forgets everything, because a new term begins.
func (f *followers) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all, f.began = nil, time.Now()
}

// silentFor returns how long ago a server last answered. If it has not answered in this term, silentFor returns how
// long ago the ticks of this term began.
func (f *followers) silentFor(id model.ServerID) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.all[id].at
	if last.Before(f.began) {
		last = f.began
	}
	return time.Since(last)
}

// answered reports whether the server answered within the last 3 s.
func (f follower) answered() bool {
	return !f.at.IsZero() && time.Since(f.at) < 3*tickEvery
}

// answersNow reports whether the server answered the last tick.
func (f follower) answersNow() bool { return !f.healthy.IsZero() || !f.lagging.IsZero() }

func (f follower) healthyFor() time.Duration {
	if f.healthy.IsZero() || !f.answered() {
		return 0
	}
	return time.Since(f.healthy)
}

// ticks sends the cluster time to every other server once a second, outside the log, and learns the log position of
// each server. With the time from ticks, the clock of a new leader continues where this leader's clock stops. It also
// calls announce once the clocks of a majority are known, or after announceRound rounds.
func (s *Server) ticks(ctx context.Context, term uint64) {
	s.state.follower.clear()
	var clocks clockWatch
	var announcing sync.WaitGroup
	defer announcing.Wait()
	announced := false
	for round := 1; ctx.Err() == nil; round++ {
		if _, self, _ := s.Leader(); self {
			s.state.progress.leads(time.Now())
		}
		s.tickAll(ctx, term)
		clocks.look(s)
		if !announced && (s.clocksKnown() || round == announceRound) {
			announced = true
			announcing.Go(func() { s.announce(ctx, term) })
		}
		pause(ctx, tickEvery)
	}
}

// tickAll sends ticks to all other servers, and waits for the answers for at most tickTimeout.
func (s *Server) tickAll(ctx context.Context, term uint64) {
	ctx, cancel := context.WithTimeout(ctx, tickTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, server := range s.servers() {
		if id := model.ServerID(server.ID); id != s.dir.id {
			wg.Go(func() { s.tickOne(ctx, term, id) })
		}
	}
	wg.Wait()
}

// tickOne sends a server two ticks, one after the other. The second one names the server's reply to the first. That
// proves that the leader read its index after this reply; see progress. If the second fails, the first still counts.
func (s *Server) tickOne(ctx context.Context, term uint64, id model.ServerID) {
	lastIndex := s.raft.LastIndex()
	reply, err := s.tick(ctx, term, id, s.state.follower.get(id).reply.Mark)
	if err != nil || reply.Server != id {
		s.state.follower.note(id, nil, lastIndex)
		return
	}
	began := time.Now()
	if again, err := s.tick(ctx, term, id, reply.Mark); err == nil && again.Server == id {
		reply = again
		s.state.follower.clock(id, reply.Wall, began.Add(time.Since(began)/2))
	}
	if s.state.follower.note(id, &reply, lastIndex) {
		s.log.Warn("a server answers but its log stays behind", "server", id, "behind", lastIndex-reply.LastIndex,
			"installs", reply.Installs)
	}
}

// tick sends a server the leader's time and the index of the leader's state. heard is the mark of the last reply that
// the leader got from that server.
func (s *Server) tick(ctx context.Context, term uint64, id model.ServerID, heard uint64) (tickReply, error) {
	t := tick{Leader: s.dir.id, Term: term, Now: s.clock.now(), State: s.cfg.Machine.State().Index, Heard: heard,
		Wall: s.WallClock().UnixMilli()}
	return askPeer[tickReply](ctx, s, s.addressOf(id), questionTick, t)
}

// answerTick takes over the leader's time, and returns this server's log position and condition. From a tick of an
// older term it takes over nothing.
func (s *Server) answerTick(t tick) tickReply {
	reply := tickReply{
		Server: s.dir.id, LastIndex: s.raft.LastIndex(), State: s.cfg.Machine.State().Index, Installs: s.fsm.installs.Load(),
		Wall:      s.cfg.Wall().UnixMilli(),
		Condition: s.Condition(),
	}
	if t.Term >= s.raft.CurrentTerm() {
		s.clock.hear(t.Now)
		s.state.median.note(t.Wall)
		reply.Mark = s.state.progress.told(t.State, t.Heard, reply.State)
	}
	return reply
}

// marksKept is how many of its last replies a server remembers. A tick names the last reply that the leader got.
const marksKept = 8

// progress records how far this server's state is behind the leader's. A tick may be delayed for any time, so its
// arrival does not show when it was sent. But each tick names the mark of a reply, and the leader sent the tick after
// it had got that reply. raft's own contact with the leader proves nothing: heartbeats arrive even when entries do not.
type progress struct {
	caughtUp atomic.Bool
	mu       sync.Mutex
	goal     uint64    // index of the leader's state in the first tick that this server got
	fresh    time.Time // the latest time at which this server provably had everything that the leader had

	want    uint64               // the leader's index that this server waits to reach; 0 means that it does not wait
	wanted  time.Time            // the leader read the index want at this time or later
	mark    uint64               // of the last reply
	replies [marksKept]time.Time // when each of the last replies was made, by mark modulo marksKept
}

// told records a tick. leader is the index of the leader's state, which the leader read after it had got this server's
// reply with the mark heard. own is the index of this server's state. told returns the mark of the next reply.
func (p *progress) told(leader, heard, own uint64) (mark uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.goal == 0 {
		p.goal = max(leader, 1)
	}
	if own >= p.goal {
		p.caughtUp.Store(true)
	}
	p.reach(own)
	if p.mark == 0 {
		p.mark = rand.Uint64N(1<<60) + marksKept // random, so that marks of an earlier process do not match
	}
	if at := p.replies[heard%marksKept]; p.want == 0 && !at.IsZero() && heard <= p.mark && heard+marksKept > p.mark {
		p.want, p.wanted = leader, at
		p.reach(own)
	}
	p.mark++
	p.replies[p.mark%marksKept] = time.Now()
	return p.mark
}

// reach records that this server has everything up to the index own. p.mu is held.
func (p *progress) reach(own uint64) {
	if p.want == 0 || own < p.want {
		return
	}
	p.want = 0
	if p.wanted.After(p.fresh) {
		p.fresh = p.wanted
	}
}

// leads records that this server led at the time now, so that it had everything at that time.
func (p *progress) leads(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want, p.fresh = 0, now
}

// CaughtUp reports whether this server has applied everything that the leader had applied when it sent the first tick
// that this server got. A server serves agents only after it has caught up.
func (s *Server) CaughtUp() bool {
	if s.state.progress.caughtUp.Load() {
		return true
	}
	p := &s.state.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.goal != 0 && s.cfg.Machine.State().Index >= p.goal {
		p.caughtUp.Store(true)
	}
	return p.caughtUp.Load()
}

// StaleFor returns how long ago this server last provably had everything that the leader had. It returns 0 while this
// server leads, and the time since the start if this server never had everything. With a reachable leader, the result
// is at most a second or two. It does not block.
func (s *Server) StaleFor() time.Duration {
	if _, self, _ := s.Leader(); self {
		return 0
	}
	own := s.cfg.Machine.State().Index
	p := &s.state.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reach(own); p.fresh.IsZero() {
		return s.seen.hearts.Uptime()
	}
	return time.Since(p.fresh)
}

// TakesEntries returns false while the disk has no room for the log. Entries that are committed during this time arrive
// once there is room again. It does not block.
func (s *Server) TakesEntries() bool { return s.disk.space.room() != RoomNone }

// Now returns the cluster time on this server. It never goes back.
func (s *Server) Now() model.Time { return s.clock.now() }
