package agent

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	// pollWait is how long a server may take to answer a long poll. The agent gives up a poll after pollTimeout.
	pollWait    = 45 * time.Second
	pollTimeout = pollWait + 10*time.Second
	// forgetWait is pollWait while an instance is to be forgotten: only an answer that comes after the acknowledgement of
	// its end makes the agent forget it.
	forgetWait = 5 * time.Second
	// unknownPause is the pause between the answer "register again" and the next request. In this time a server that lags
	// behind may catch up.
	unknownPause = 500 * time.Millisecond
)

// keepAssigned asks the servers which instances to run, and runs them, until ctx ends. After each registration it acts
// on the first answer before the agent sends its full inventory, so that the inventory contains what was assigned.
func (a *Agent) keepAssigned(ctx context.Context) {
	retry := backoff{first: 100 * time.Millisecond, most: 5 * time.Second}
	var opened registration // the registration that reports.begin got last
	whole := true           // false if the last answer lacked the spec of an instance
	for ctx.Err() == nil {
		now, registered := a.session.current()
		if now == (registration{}) {
			sleep(ctx, maxWait, registered)
			continue
		}
		last := a.session.newest()
		if now != opened || !whole {
			last.Index = 0
		}
		answer, err := a.pollAssignments(ctx, now.epoch, last, registered)
		switch newer, _ := a.session.current(); {
		case newer != now:
			continue // the agent has registered again, and the answer belongs to the earlier registration
		case err != nil:
			if ctx.Err() == nil {
				a.log.Log(retry.level(), "assignments could not be read", "error", err)
				a.setProblem("assignments", err.Error())
				sleep(ctx, retry.next(rand.Float64()), registered)
			}
			continue
		case answer.Register:
			a.registerAgain(ctx, now, registered)
			continue
		}
		taken, complete := a.accept(now, answer)
		if !taken {
			sleep(ctx, retry.next(rand.Float64()), registered)
			continue
		}
		if whole = complete; !whole && last.Index == 0 { // index 0 asks for all specs, so asking again would not help
			a.log.Error("something is assigned without its spec")
			whole = true
		}
		retry.reset()
		a.setProblem("assignments", "")
		if now != opened {
			opened = now
			a.shared.reports.begin(now, a.session.newest().Incarnation)
		}
	}
}

// beatEvery returns the interval of heartbeats. It is the interval that the servers ask for, or a shorter one if the
// lease of an instance here needs it.
func (a *Agent) beatEvery() time.Duration {
	every := time.Duration(a.every.Load())
	for _, m := range a.supervisors.list() {
		if want := m.wanted(); fenced(want) {
			every = min(every, leaseOf(want)/model.LeaseBeats)
		}
	}
	return every
}

// pollAssignments makes one long poll. The poll is canceled when registered is closed.
func (a *Agent) pollAssignments(ctx context.Context, epoch uint64, last model.Seen,
	registered <-chan struct{}) (transport.Assignments, error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	ctx, stop := until(ctx, registered)
	defer stop()
	wait := pollWait
	if a.supervisors.forgetsSoon() {
		wait = forgetWait
	}
	return a.cfg.Servers.Assignments(ctx, transport.AssignmentsRequest{
		Node: a.home.node, Epoch: epoch, Index: last.Index, Incarnation: last.Incarnation,
		Wait: model.Duration(wait / time.Millisecond),
		Seen: a.session.newest(),
	})
}

// registerAgain repeats the poll, because the first answer may come from a server that lags behind. If the servers
// again ask the agent to register, it makes keepRegistered do so, and waits at most registerTimeout for the new
// registration. The channel registered is closed at the next registration.
func (a *Agent) registerAgain(ctx context.Context, now registration, registered <-chan struct{}) {
	if !sleep(ctx, unknownPause, registered) {
		return
	}
	answer, err := a.pollAssignments(ctx, now.epoch, model.Seen{}, registered)
	if err != nil || !answer.Register {
		return
	}
	a.log.Warn("the servers ask to register again", "epoch", now.epoch)
	a.session.lost(now)
	sleep(ctx, registerTimeout, registered)
}

// accept acts on an answer that belongs to the registration now. If it has already acted on a newer answer, it does
// nothing and returns false for taken. It returns false for whole if the spec of an assigned instance is missing.
func (a *Agent) accept(now registration, answer transport.Assignments) (taken, whole bool) {
	got, newest := model.Seen{Incarnation: answer.Incarnation, Index: answer.Index}, a.session.newest()
	if got.Before(newest) {
		a.log.Debug("older assignments ignored", "index", got.Index, "seen", newest.Index)
		return false, false
	}
	restored := newest.Incarnation < got.Incarnation
	if restored {
		a.shared.reports.repeat()
	}
	if newest.Before(got) {
		a.session.saw(got)
		if err := a.home.records.put(keySeen, got); err != nil {
			a.log.Error("index of the assignments could not be written", "error", err)
		}
	}
	if answer.Heartbeat > 0 {
		a.every.Store(int64(asDuration(answer.Heartbeat)))
	}
	whole = a.supervisors.converge(now, answer)
	if restored { // after converge, because the inventory must contain the assigned instances
		a.shared.reports.resendInventory(got.Incarnation)
	}
	if a.beats != nil {
		a.beats.SetInterval(a.beatEvery())
	}
	a.puller.want(answer.Images)
	a.shared.reports.keepTransfers(answer.Transfers)
	a.mover.Set(answer.Transfers, answer.Unconfirmed)
	return true, whole
}
