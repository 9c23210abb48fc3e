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
	// announceRound is the round of ticks after which the leader writes that it leads even if it knows too few clocks.
	announceRound = 5
	lagPatience   = 30 * time.Second // a server that answers but lags this long is logged
)

// followers is what the leader knows of the other servers from their answers to its ticks.
type followers struct {
	mu    sync.Mutex
	all   map[model.ServerID]follower
	began time.Time // when the ticks of this term began
}

type follower struct {
	reply    tickReply
	at       time.Time     // of the reply
	ahead    time.Duration // its wall clock minus the leader's
	clocked  bool          // ahead is known
	healthy  time.Time     // since when it has answered and been close behind; zero: not now
	lagging  time.Time     // since when it has answered but been far behind; zero: not now
	reported bool          // the lag was logged
}

// note takes in the outcome of one tick; reply is nil if there was no answer. It returns whether the lag should be
// reported.
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

// silentFor returns how long ago a server last answered. If it has not answered since the ticks began, that time
// counts.
func (f *followers) silentFor(id model.ServerID) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	last := f.all[id].at
	if last.Before(f.began) {
		last = f.began
	}
	return time.Since(last)
}

// answered reports whether the server answered one of the last ticks.
func (f follower) answered() bool {
	return !f.at.IsZero() && time.Since(f.at) < 3*tickEvery
}

// answersNow reports whether the server answered the very last tick.
func (f follower) answersNow() bool { return !f.healthy.IsZero() || !f.lagging.IsZero() }

func (f follower) healthyFor() time.Duration {
	if f.healthy.IsZero() || !f.answered() {
		return 0
	}
	return time.Since(f.healthy)
}

// ticks sends the cluster time to every other server once a second, outside the log, and learns how far each server is.
// So a new leader's clock goes on where this one's stops.
func (s *Server) ticks(ctx context.Context, term uint64) {
	s.state.follower.clear()
	s.state.medianAhead.Store(0)
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

// tickAll sends ticks to every other server and waits for the answers, at most tickTimeout.
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

// tickOne sends two ticks, one after the other. The second one, which may get lost, tells the server that the leader
// has its reply to the first. So the server knows that the second tick's content is no older than that reply.
func (s *Server) tickOne(ctx context.Context, term uint64, id model.ServerID) {
	lastIndex := s.raft.LastIndex()
	reply, err := s.tick(ctx, term, id, s.state.follower.get(id).reply.Mark)
	if err != nil || reply.Server != id {
		s.state.follower.note(id, nil, lastIndex)
		return
	}
	began, own := time.Now(), s.cfg.Wall()
	if again, err := s.tick(ctx, term, id, reply.Mark); err == nil && again.Server == id {
		reply = again
		s.state.follower.clock(id, reply.Wall, own.Add(time.Since(began)/2))
	}
	if s.state.follower.note(id, &reply, lastIndex) {
		s.log.Warn("a server answers but its log stays behind", "server", id, "behind", lastIndex-reply.LastIndex,
			"installs", reply.Installs)
	}
}

// tick sends one server the leader's time and the index of its state. heard is the mark of the last reply that the
// leader has.
func (s *Server) tick(ctx context.Context, term uint64, id model.ServerID, heard uint64) (tickReply, error) {
	t := tick{Leader: s.dir.id, Term: term, Now: s.clock.now(), State: s.cfg.Machine.State().Index, Heard: heard}
	return askPeer[tickReply](ctx, s, s.addressOf(id), questionTick, t)
}

// answerTick takes over the leader's time, and returns how far this server is and its condition. It ignores the time of
// a deposed leader.
func (s *Server) answerTick(t tick) tickReply {
	reply := tickReply{
		Server: s.dir.id, LastIndex: s.raft.LastIndex(), State: s.cfg.Machine.State().Index, Installs: s.fsm.installs.Load(),
		Wall:      s.cfg.Wall().UnixMilli(),
		Condition: s.Condition(),
	}
	if t.Term >= s.raft.CurrentTerm() {
		s.clock.hear(t.Now)
		reply.Mark = s.state.progress.told(t.State, t.Heard, reply.State)
	}
	return reply
}

// marksKept is how many replies to ticks are remembered. The leader names the last one that it got.
const marksKept = 8

// progress is how far this server's state is behind the leader's. A tick may have been under way, or lain in a socket,
// for any time. It is only certain that the leader sent it after the reply whose mark it names. raft's own contact with
// the leader shows nothing: heartbeats arrive even while entries do not.
type progress struct {
	caughtUp atomic.Bool
	mu       sync.Mutex
	goal     uint64    // index of the leader's state at its first tick
	fresh    time.Time // the newest time at which this server had everything

	want    uint64    // index that the leader had at some time; 0: nothing is waited for
	wanted  time.Time // when the leader had it
	mark    uint64    // of the last reply
	replies [marksKept]time.Time
}

// told takes in the index of the leader's state. That index is no older than this server's reply with the mark heard.
// told returns the mark of the next reply.
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
		p.mark = rand.Uint64N(1<<60) + marksKept // random, so that marks of an earlier process match none
	}
	if at := p.replies[heard%marksKept]; p.want == 0 && !at.IsZero() && heard <= p.mark && heard+marksKept > p.mark {
		p.want, p.wanted = leader, at
		p.reach(own)
	}
	p.mark++
	p.replies[p.mark%marksKept] = time.Now()
	return p.mark
}

// reach notes that this server has everything up to the index own. p.mu is held.
func (p *progress) reach(own uint64) {
	if p.want == 0 || own < p.want {
		return
	}
	p.want = 0
	if p.wanted.After(p.fresh) {
		p.fresh = p.wanted
	}
}

// leads notes that this server led at a time, and so had everything then.
func (p *progress) leads(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want, p.fresh = 0, now
}

// CaughtUp is false from the start until everything that was committed before the start is applied here. Only then does
// a server serve agents.
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

// StaleFor returns how long ago this server last provably had everything; 0 while it leads. With a reachable leader it
// is up to a second or two. It does not block.
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

// TakesEntries is false while the disk has no room for the log. Entries that are committed meanwhile arrive when there
// is room again. It does not block.
func (s *Server) TakesEntries() bool { return s.disk.space.room() != RoomNone }

// Now returns the cluster time on this server. It never goes back.
func (s *Server) Now() model.Time { return s.clock.now() }
