package httpapi

import (
	"context"
	"runtime"
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
	ShareSnapshots Share = "snapshots" // snapshots that are being saved or restored
	ShareBytes     Share = "bytes"     // bodies of requests in memory, and answers that are not read yet
	ShareWork      Share = "work"      // answers that are being computed
	ShareRows      Share = "rows"      // request ids that the state keeps
)

// Shares returns all shares.
func Shares() []Share {
	return []Share{ShareRequests, ShareWatches, ShareStreams, ShareSnapshots, ShareBytes, ShareWork, ShareRows}
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
	s.streams = newPlaces(ShareStreams, limit, max(limit/4, 1), s.cfg.Beyond)
	s.snapshots = newPlaces(ShareSnapshots, snapshotsInAll, snapshotsOfOne, s.cfg.Beyond)
	s.blocking = newPlaces(ShareWatches, 0, watchesOfOne, s.cfg.Beyond)
	s.held = newPlaces(ShareRequests, heldInAll, heldOfOne, func(Share) {})
	s.asking, s.comparing = s.newQuestions(1, 2), s.newQuestions(4, 1)
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
	switch {
	case who.Kind == model.SubjectServer:
	case p.of[who] >= p.own:
		p.beyond(p.share)
		return nil, model.Refuse(model.CodeBusy, "%s has %d %s open on this server, which is its share", who, p.of[who],
			p.share).WithHint("close some, or ask another server")
	case p.inAll > 0 && p.open+p.of[who] >= p.inAll && who.Kind != model.SubjectUID:
		return nil, model.Refuse(model.CodeBusy, "%d %s are open already", p.open, p.share).
			WithHint("ask another server, or close some")
	}
	p.open++
	p.of[who]++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.open--
		if p.of[who]--; p.of[who] == 0 {
			delete(p.of, who)
		}
	}, nil
}
