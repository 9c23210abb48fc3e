package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// servers is the number of servers. All of them are voters.
const servers = 3

// Config says which history to run.
type Config struct {
	Seed     uint64
	Scenario string // if empty, the seed chooses one
	Keep     []bool // which actions of the schedule happen; nil means all
	Lines    int    // how many of the trace's last lines are kept; 0 means none
}

// Result is the outcome of a history.
type Result struct {
	Seed     uint64
	Scenario string
	Schedule []Action
	Failure  *fsm.Finding // the broken rule; nil if every rule held
	FailedAt int          // number of actions of Schedule whose time had come before the failure
	Hash     uint64       // hash of everything that happened
	Counts   Counts
	Trace    []string
}

// world is one history while it runs. Only one goroutine may use it.
type world struct {
	seed     uint64
	scenario *scenario
	now      model.Time // true time, ms
	events   queue
	log      *log
	lead     *leader // nil while no server leads
	nodes    []*machine
	net      *network
	clients  *clients
	judge    *judge
	trace    *trace
	counts   Counts
	chance   *rand.Rand // source of the models' own delays and losses
	failure  *fsm.Finding
	calm     bool // no more faults happen
}

// Run runs one history. It usually takes well below a second and uses no other goroutine. The same Config always gives
// the same Result.
func Run(cfg Config) Result {
	_, result := run(cfg)
	return result
}

// run is like Run, but also returns the world in its final state.
func run(cfg Config) (w *world, result Result) {
	sc := scenarioOf(cfg)
	w = newWorld(cfg, sc)
	result = Result{Seed: cfg.Seed, Scenario: sc.name, Schedule: sc.schedule(cfg.Seed)}
	defer func() {
		if cause := recover(); cause != nil {
			w.fail("", "panic: %v\n%s", cause, stack())
		}
		result.Failure, result.Hash, result.Counts, result.Trace = w.failure, w.trace.sum, w.counts, w.trace.last()
	}()
	w.begin()
	for i, action := range result.Schedule {
		result.FailedAt = i
		w.until(action.At)
		if w.failure != nil {
			return w, result
		}
		if len(cfg.Keep) == 0 || cfg.Keep[i] {
			w.trace.note(w.now, byte(action.Kind), uint64(i), action.Number)
			w.trace.say("action %d: %s", i, action.Kind)
			w.perform(action)
		}
	}
	result.FailedAt = len(result.Schedule)
	w.finish()
	return w, result
}

func newWorld(cfg Config, sc *scenario) *world {
	w := &world{seed: cfg.Seed, scenario: sc, trace: newTrace(cfg.Lines), chance: random(cfg.Seed, "model")}
	w.trace.clock = func() model.Time { return w.now }
	w.log = newLog(w)
	w.net = newNetwork(w)
	w.clients = newClients(w)
	w.judge = newJudge(w)
	return w
}

// random returns a random source for one purpose. Draws for one purpose don't change those for another.
func random(seed uint64, purpose string) *rand.Rand {
	h := uint64(14695981039346656037)
	for i := range len(purpose) {
		h = (h ^ uint64(purpose[i])) * 1099511628211
	}
	return rand.New(rand.NewPCG(seed, h))
}

// begin creates the cluster, with its first leader, settings and nodes.
func (w *world) begin() {
	r := random(w.seed, "cluster")
	w.log.elect(r.IntN(servers), 0)
	settings := w.scenario.settings(r)
	w.log.propose(&proposal{entry: w.entry("server:s1", &fsm.ClusterInit{ID: "c1", Name: "sim", Settings: settings})})
	count := w.scenario.least + r.IntN(w.scenario.most-w.scenario.least+1)
	for i := range count {
		m := newMachine(w, i, r)
		w.nodes = append(w.nodes, m)
		w.net.join(m)
	}
	for _, m := range w.nodes {
		m.start()
	}
	w.until(5000)
	if w.scenario.fair {
		w.clients.ask("batch is fair", &fsm.ClassSet{Name: model.ClassBatch, PreemptEqual: model.PreemptFair})
	}
}

// entry returns an entry of a person or an agent. It carries no term, so it is accepted in every term.
func (w *world) entry(actor model.Actor, commands ...fsm.Command) fsm.Entry {
	e := fsm.Entry{Format: model.CurrentFormat, At: w.clock(), Wall: w.wall(), Actor: actor}
	for _, c := range commands {
		e.Groups = append(e.Groups, []fsm.Command{c})
	}
	return e
}

// clock returns the cluster time of the leader. Without a leader it returns the time of the last committed entry.
func (w *world) clock() model.Time {
	if w.lead != nil {
		return w.lead.clock()
	}
	return w.log.first.Now
}

// wall returns the wall clock time, in ms. A history starts at an arbitrary fixed time.
func (w *world) wall() int64 { return 1_700_000_000_000 + int64(w.now) }

// until runs all events up to the time t, and moves the clock to t. It stops early at a failure.
func (w *world) until(t model.Time) {
	for w.failure == nil && len(w.events.heap) > 0 && w.events.heap[0].at <= t {
		e, _ := w.events.pop()
		w.now = max(w.now, e.at)
		e.do()
	}
	if w.failure == nil {
		w.now = max(w.now, t)
	}
}

func (w *world) after(d model.Duration, do func()) { w.events.push(w.now.Add(d), do) }

// between draws a duration from low to high, including both.
func between(r *rand.Rand, low, high model.Duration) model.Duration {
	return low + model.Duration(r.Int64N(int64(high-low)+1))
}

// fail ends the history. Later failures are ignored.
func (w *world) fail(rule fsm.Invariant, format string, args ...any) {
	if w.failure != nil {
		return
	}
	text := fmt.Sprintf("%s (true time %s, index %d)", fmt.Sprintf(format, args...),
		model.Duration(w.now), w.log.first.Index)
	w.failure = &fsm.Finding{Invariant: rule, Text: text}
	w.trace.say("FAILED %v", w.failure)
}

// step counts one step of the history: an entry, or an event of an agent, a program or the network.
func (w *world) step(kind Counter) {
	w.counts[CountSteps]++
	w.counts[kind]++
}
