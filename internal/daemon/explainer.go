package daemon

import (
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
	"github.com/outspan/outspan/transport/httpapi"
)

// explainer answers the API's questions about why something waits. It runs the same passes as the leader's loop, but
// returns only the reasons.
type explainer struct{}

// planner answers the API's questions about what a change would do. It also runs the passes of the leader's loop.
type planner struct {
	mu   sync.Mutex
	seen *reconcile.Cache // made by a forecast, and dropped after keptFor; otherwise nil
}

// keptFor is how long a planner keeps the cache of its first forecast for later forecasts, because drains are often
// started one after the other. A longer time would keep old rows in memory.
const keptFor = time.Minute

// remembering calls the function do with the cache that forecasts share. While another call uses that cache, do gets an
// empty cache instead.
func (p *planner) remembering(do func(*reconcile.Cache)) {
	if !p.mu.TryLock() {
		do(new(reconcile.Cache))
		return
	}
	defer p.mu.Unlock()
	if p.seen == nil {
		p.seen = new(reconcile.Cache)
		time.AfterFunc(keptFor, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.seen = nil
		})
	}
	do(p.seen)
}

func input(q httpapi.Question) reconcile.Input {
	return reconcile.Input{State: q.State, Live: q.Live, Now: q.Now}
}

// explained returns why things wait. It does not plan the rescheduler's moves, because planning them takes most of the
// time in a large cluster.
func explained(q httpapi.Question) *reconcile.Explanation {
	in := input(q)
	in.StayPut = true
	return reconcile.Explain(in)
}

// Why implements httpapi.Explainer.
func (explainer) Why(q httpapi.Question, subject string) (model.WhyResult, error) {
	kind, object, _ := strings.Cut(subject, "/")
	if d, ok := q.State.Deployments.Get(model.DeploymentID(object)); ok && kind == "deployment" {
		object = string(d.Job)
	}
	result, refusal := reconcile.Explain(input(q)).Why(object)
	if refusal != nil {
		return result, refusal
	}
	return result, nil
}

// Waiting implements httpapi.Explainer.
func (explainer) Waiting(q httpapi.Question) httpapi.Waiting {
	e := explained(q)
	w := httpapi.Waiting{
		Groups: map[model.GroupID]model.Blocker{}, Instances: map[model.InstanceID][]model.Blocker{},
		Drains: map[model.DrainID][]model.DrainStatus{},
	}
	for id, d := range q.State.Drains.All() {
		if d.Phase() == model.PhaseDraining {
			w.Drains[id] = e.Drain(d)
		}
	}
	for id := range q.State.Groups.All() {
		if why := e.Pending(id); why != nil {
			w.Groups[id] = model.Blocker{Code: why.Code, Message: why.Message, Unblock: why.Hint}
		}
	}
	for id, inst := range q.State.Instances.All() {
		if inst.Eviction.Requested {
			if waits := e.Waiting(id); len(waits) > 0 {
				w.Instances[id] = waits
			}
		}
	}
	return w
}

// DrainStatus implements httpapi.Explainer.
func (explainer) DrainStatus(q httpapi.Question, id model.DrainID) []model.DrainStatus {
	d, ok := q.State.Drains.Get(id)
	if !ok {
		return nil
	}
	return explained(q).Drain(d)
}

// Forecast implements httpapi.Planner.
func (p *planner) Forecast(q httpapi.Question, id model.DrainID) []model.Forecast {
	d, ok := q.State.Drains.Get(id)
	if !ok {
		return nil
	}
	var nodes []string
	for _, part := range d.Nodes {
		nodes = append(nodes, string(part.Node))
	}
	var forecast []model.Forecast
	p.remembering(func(seen *reconcile.Cache) {
		in := input(q)
		in.Cache = seen
		// an error means that the drain can't start, for example because a node no longer exists
		forecast, _ = reconcile.ForecastDrain(in, nodes, d.Options)
	})
	return forecast
}

// Moves implements httpapi.Planner.
func (*planner) Moves(q httpapi.Question) ([]fsm.Move, [][]fsm.Command) {
	return reconcile.Moves(input(q))
}

// Plan implements httpapi.Planner.
func (*planner) Plan(q httpapi.Question, spec model.JobSpec) (model.JobPlan, error) {
	plan, refusal := reconcile.PlanJob(input(q), spec)
	if refusal != nil {
		return plan, refusal
	}
	return plan, nil
}
