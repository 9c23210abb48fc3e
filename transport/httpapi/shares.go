package httpapi

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Share names something of which each subject has a share. A subject is a person's certificate, a token, a user of the
// socket or an agent, through whatever connections it calls.
type Share string

// The shares of a subject. Beyond a share only the subject's own calls are refused, with the code busy, or
// rate_limited for ShareRequests.
const (
	ShareRequests  Share = "requests"  // requests a second; the leader counts those that other servers forward
	ShareWatches   Share = "watches"   // reads that wait for a change
	ShareStreams   Share = "streams"   // streams of events and logs
	SharePages     Share = "pages"     // streams of the page
	ShareSnapshots Share = "snapshots" // snapshots that are being saved or restored
	ShareBytes     Share = "bytes"     // bodies of requests in memory, and answers that are not read yet
	ShareWork      Share = "work"      // answers that are being computed
	ShareRows      Share = "rows"      // request ids that the state keeps
)

// Shares returns all shares.
func Shares() []Share {
	return []Share{ShareRequests, ShareWatches, ShareStreams, SharePages, ShareSnapshots, ShareBytes, ShareWork, ShareRows}
}

const (
	watchesOfOne   = 200 // a client that watches everything has about 20
	snapshotsInAll = 16
	snapshotsOfOne = 4

	openBodiesOfOne = 256 << 10 // of a source
	openBodiesInAll = 4 << 20

	heldInAll   = 4096
	heldOfOne   = 256
	refusalTime = 250 * time.Millisecond
)

// openShares makes what counts the shares.
func (s *Server) openShares() {
	limit := s.cfg.Limits.Streams
	s.streams = &streamPlaces{places: newPlaces(ShareStreams, limit, max(limit/4, 1), s.cfg.Beyond)}
	s.snapshots = newPlaces(ShareSnapshots, snapshotsInAll, snapshotsOfOne, s.cfg.Beyond)
	s.blocking = newPlaces(ShareWatches, 0, watchesOfOne, s.cfg.Beyond)
	s.held = newPlaces(ShareRequests, heldInAll, heldOfOne, func(Share) {})
	s.asking, s.comparing, s.measuring = s.newQuestions(1, 2), s.newQuestions(4, 1), s.newQuestions(8, 2)
	s.turns = newTurns(runtime.GOMAXPROCS(0)/2, s.cfg.Beyond)
	s.openBodies = transport.NewBodies(openBodiesOfOne, openBodiesInAll)
	s.answers = transport.NewBodies(answersOfOne, answersInAll)
	for _, bytes := range [...]*transport.Bodies{s.answers, s.cfg.Bodies} {
		bytes.OnBeyond(func() { s.cfg.Beyond(ShareBytes) })
	}
}

// holdRefusal waits for refusalTime before a caller beyond its rate is refused, so that one that repeats at once costs
// less. It does not wait if many refusals of the caller, or of all callers, wait already.
func (s *Server) holdRefusal(ctx context.Context, who model.Subject) {
	release, err := s.held.take(who)
	if err != nil {
		return
	}
	defer release()
	timer := time.NewTimer(refusalTime)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-transport.Stopping(ctx):
	}
}

// places limits how many things of one kind may be open, in all and for each subject. Safe for concurrent use.
type places struct {
	share      Share
	inAll, own int         // 0 in inAll means no limit
	beyond     func(Share) // gets each refusal because of a subject's share

	mu   sync.Mutex
	open int
	of   map[model.Subject]int
}

func newPlaces(share Share, inAll, own int, beyond func(Share)) *places {
	return &places{share: share, inAll: inAll, own: own, beyond: beyond, of: map[model.Subject]int{}}
}

// take counts one thing as open. The caller must call release once, when the thing has ended. take does not block.
// Servers have no share, because each acts for many subjects. No subject may hold more than what is still free, so
// each greedy subject leaves half of the rest to others. The limit of all does not apply to the users of the socket.
// Code: busy.
func (p *places) take(who model.Subject) (release func(), _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.admit(who, p.of[who]); err != nil {
		return nil, err
	}
	p.count(who, 1)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.count(who, -1)
	}, nil
}

// admit returns an error if a subject may open nothing more. left is how many places must remain for others. The caller
// holds p.mu. Code: busy.
func (p *places) admit(who model.Subject, left int) error {
	switch {
	case who.Kind == model.SubjectServer:
	case p.of[who] >= p.own:
		p.beyond(p.share)
		return model.Refuse(model.CodeBusy, "%s has %d %s open on this server, which is its share", who, p.of[who],
			p.share).WithHint("close some, or ask another server")
	case p.inAll > 0 && p.open+left >= p.inAll && who.Kind != model.SubjectUID:
		return model.Refuse(model.CodeBusy, "%d %s are open already", p.open, p.share).
			WithHint("ask another server, or close some")
	}
	return nil
}

// count adds to the number of open things of a subject. The caller holds p.mu.
func (p *places) count(who model.Subject, n int) {
	p.open += n
	if p.of[who] += n; p.of[who] == 0 {
		delete(p.of, who)
	}
}

// streamPlaces are places of streams, which may last for days. So when all places are taken, whoever has most of them
// loses one to a subject with fewer. Safe for concurrent use.
type streamPlaces struct {
	*places
	all []*openStream // the oldest first
}

// openStream is a stream that has a place.
type openStream struct {
	who model.Subject
	end context.CancelCauseFunc
}

// displaced is the cause for which a stream ends that loses its place.
func displaced() error {
	return model.Refuse(model.CodeBusy, "the server ended it, to give its place to a subject with fewer streams").
		WithHint("close some of your streams, or ask another server; then start it again")
}

// take is places.take for a stream. The context that it returns ends with ctx, or when the stream loses its place, with
// the cause displaced.
func (p *streamPlaces) take(ctx context.Context, who model.Subject) (_ context.Context, release func(), _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if who.Kind != model.SubjectServer && p.of[who] < p.own && p.open >= p.inAll {
		p.displace(who)
	}
	if err := p.admit(who, 0); err != nil {
		return nil, nil, err
	}
	ctx, end := context.WithCancelCause(ctx)
	one := &openStream{who, end}
	p.all = append(p.all, one)
	p.count(who, 1)
	return ctx, func() {
		end(nil)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.remove(one)
	}, nil
}

// displace ends the newest stream of the subject that has most of them, unless who would have as many. The caller holds
// p.mu.
func (p *streamPlaces) displace(who model.Subject) {
	most := p.of[who] + 1
	var victim *openStream
	for _, one := range p.all {
		if n := p.of[one.who]; n > most || n == most && victim != nil {
			most, victim = n, one
		}
	}
	if victim != nil {
		victim.end(displaced())
		p.remove(victim)
	}
}

// remove frees the place of a stream, unless it has lost it already. The caller holds p.mu.
func (p *streamPlaces) remove(one *openStream) {
	if i := slices.Index(p.all, one); i >= 0 {
		p.all = slices.Delete(p.all, i, i+1)
		p.count(one.who, -1)
	}
}
