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
	// announceRound is the round of ticks after which the leader writes that it leads although it knows too few clocks.
	announceRound = 5
	lagPatience   = 30 * time.Second // a server in contact that stays behind for so long is reported
)

// followers is what the leader knows of the other servers by their answers to its ticks.
type followers struct {
	mu    sync.Mutex
	all   map[model.ServerID]follower
	began time.Time // of the ticks of this term
}

type follower struct {
	reply    tickReply
	at       time.Time     // of the reply
	ahead    time.Duration // of the leader's wall clock: its own, as the reply told it
	clocked  bool          // ahead is known
	healthy  time.Time     // answered and close behind since then; zero: not now
	lagging  time.Time     // answered but far behind since then; zero: not now
	reported bool          // the lag, in the log
}

// note takes the outcome of one tick; reply is nil when there was none. It returns the follower if its lag should
// be reported.
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

// clear forgets everything: it was another term.
func (f *followers) clear() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all, f.began = nil, time.Now()
}

// silentFor is how long ago a server last answered, or the ticks began.
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

// ticks tells every other server the cluster time once a second, outside the log, and learns how each is. So a new
// leader's clock goes on where this one's stops.
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

// tickOne sends two ticks, one behind the other. The second one tells the server that its reply to the first was heard:
// so it knows that what it is told is no older than that. It may get lost.
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

// tick tells one server where the leader is, after its reply with the mark heard.
func (s *Server) tick(ctx context.Context, term uint64, id model.ServerID, heard uint64) (tickReply, error) {
	t := tick{Leader: s.dir.id, Term: term, Now: s.clock.now(), State: s.cfg.Machine.State().Index, Heard: heard}
	return askPeer[tickReply](ctx, s, s.addressOf(id), questionTick, t)
}

// answerTick takes over the leader's time and says how this server is. What a deposed leader says is not heard.
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

// marksKept is how many replies to ticks are remembered. The leader tells the last one that it heard.
const marksKept = 8

// progress is how far this server's state is behind the leader's. A tick may have been under way, or lain in a socket,
// for any time: all that is known is that the leader sent it after the reply whose mark it names. raft's own contact
// with the leader says nothing: heartbeats come through while entries wait for their next try.
type progress struct {
	caughtUp atomic.Bool
	mu       sync.Mutex
	goal     uint64    // index of the leader's state at its first tick
	fresh    time.Time // this server had everything then

	want    uint64    // index that the leader had at some time; 0: nothing is waited for
	wanted  time.Time // that time
	mark    uint64    // of the last reply
	replies [marksKept]time.Time
}

// told takes the index of the leader's state, not older than this server's reply with the mark heard. It returns the
// mark of the reply to come.
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
		p.mark = rand.Uint64N(1<<60) + marksKept // a mark of an earlier process of this server is none of these
	}
	if at := p.replies[heard%marksKept]; p.want == 0 && !at.IsZero() && heard <= p.mark && heard+marksKept > p.mark {
		p.want, p.wanted = leader, at
		p.reach(own)
	}
	p.mark++
	p.replies[p.mark%marksKept] = time.Now()
	return p.mark
}

// reach notes that this server has everything up to an index; p.mu is held.
func (p *progress) reach(own uint64) {
	if p.want == 0 || own < p.want {
		return
	}
	p.want = 0
	if p.wanted.After(p.fresh) {
		p.fresh = p.wanted
	}
}

// leads notes that this server led at a time, and so had everything.
func (p *progress) leads(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.want, p.fresh = 0, now
}

// CaughtUp is false from the start until everything that was committed before is applied here. A server serves
// agents only then.
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

// StaleFor is how long ago this server last knew that it had everything, at least; 0 while it leads. While the leader
// is heard that is between a moment and a second or two. It does not block.
func (s *Server) StaleFor() time.Duration {
	if _, self, _ := s.Leader(); self {
		return 0
	}
	own := s.cfg.Machine.State().Index
	p := &s.state.progress
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reach(own); p.fresh.IsZero() {
		return s.sight.hearts.Uptime()
	}
	return time.Since(p.fresh)
}

// TakesEntries is false while the disk has no room for the log. What is committed meanwhile comes when there is room
// again. It does not block.
func (s *Server) TakesEntries() bool { return s.disk.space.room() != RoomNone }

// Now is cluster time on this server. It never goes back.
func (s *Server) Now() model.Time { return s.clock.now() }
