package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outspan/outspan/model"
)

// Properties of the agents and of the workload's jobs.
const (
	chaosMemory = 2 << 30    // bytes of memory of each agent
	probedGroup = "web/http" // the group that answers the probes
	ledgerJob   = "ledger"   // a job without instances; each write makes a version of it
)

var (
	exclusiveJobs = []string{"solo", "base", "lone"} // each of their slots may have only one holder
	minReady      = map[string]int{probedGroup: 4, "pool/http": 2, "box/site": 2}
	chaosCounts   = map[string]int{"web": 6, "pool": 4, "solo": 2, "base": 1, "box": 3, "lone": 1}
	chaosPorts    = [2]int{18080, 18081} // exposed ports of the jobs web and box
)

// stubborn is a part of job files. It makes the agent restart a program each time that a fault kills it.
const stubborn = "    restart {\n      attempts = 1000\n      interval = \"10m\"\n" +
	"      delay    = \"200ms\"\n    }\n    reschedule {\n      attempts = 1000\n      interval = \"10m\"\n    }\n"

// holderJob is the job file of a group whose slots may have only one holder each. Every 0.2 s an instance appends a
// line to a file that its slot's instances on all nodes share.
const holderJob = `job %q {
  group "one" {
    count = %d
    exec {
      command = "/bin/sh"
      args    = ["-c", "umask 0; while read up idle </proc/uptime; do echo $OUTSPAN_INSTANCE_ID $OUTSPAN_FENCING_EPOCH $OUTSPAN_NODE $up >>%s.$OUTSPAN_SLOT; sleep 0.2; done"]
    }
    resources {
      memory = "16MiB"
    }
    stop {
      grace       = "2s"
      drain_delay = "0s"
    }
%s%s  }
}
`

// workload is what users and programs do all the time: writes whose outcome is recorded, rollouts, scaling, evictions
// and drains.
type workload struct {
	x     *chaos
	gate  sync.RWMutex // a worker locks it for reading in each step; a quiet phase locks it to stop all workers
	quit  chan struct{}
	done  sync.WaitGroup
	count atomic.Int64
	specs map[string]map[string]any // by job

	mu     sync.Mutex
	marks  map[string]mark // the last acknowledged write to each label
	booked []string        // acknowledged requests of the job ledger that are not checked yet
	refuse []string        // refused requests of the job ledger
	web    int             // count of the web service
	box    int             // count of the service of containers
	churn  map[string]int  // count of each job that churnJobs submits and purges; 0 means that there is no such job
}

// mark is a label to which one worker writes growing numbers, with the last acknowledged number.
type mark struct{ node, label, acked string }

func newWorkload(x *chaos) *workload {
	w := &workload{x: x, quit: make(chan struct{}), specs: map[string]map[string]any{}, marks: map[string]mark{},
		churn: map[string]int{}, web: chaosCounts["web"],
		box: chaosCounts["box"]}
	x.t.Helper()
	if err := os.Mkdir(x.c.path("witness"), 0o777); err != nil {
		x.t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{x.c.path("witness"): 0o777, x.c.dir: 0o755} {
		if err := os.Chmod(path, mode); err != nil { // instances run as other users
			x.t.Fatal(err)
		}
	}
	volume := "    volume \"data\" {\n      kind = \"local\"\n      path = \"" + x.c.path("place") +
		"\"\n    }\n    constraint {\n      attribute = \"node.name\"\n      value     = \"n1\"\n    }\n"
	c, stop := x.c, "    stop {\n      grace = \"3s\"\n    }\n"
	w.learn("web",
		job{name: "web", count: chaosCounts["web"], expose: chaosPorts[0],
			more: "    budget { min_ready = 4 }\n" + stop + stubborn}.hcl(c.bin))
	w.learn("pool", job{name: "pool", count: chaosCounts["pool"], args: []string{"--boot", "500ms"},
		more: "    budget { min_ready = 2 }\n" + stop + stubborn}.hcl(c.bin))
	w.learn("solo",
		fmt.Sprintf(holderJob, "solo", chaosCounts["solo"], x.witness("solo"),
			"    exclusive {\n      lease = \"10s\"\n    }\n", stubborn))
	w.learn("base", fmt.Sprintf(holderJob, "base", chaosCounts["base"], x.witness("base"), volume, stubborn))
	w.learn("churn", job{name: "churn", count: 1, more: stop + stubborn}.hcl(c.bin))
	if x.crates.used() {
		w.learn("box", fmt.Sprintf(boxJob, chaosCounts["box"], registryName, chaosPorts[1], stubborn))
		w.learn("lone", fmt.Sprintf(loneJob, chaosCounts["lone"], registryName, stubborn))
	}
	w.learn(ledgerJob, job{name: ledgerJob, count: 0}.hcl(c.bin))
	return w
}

// witness returns the prefix of the files that the holders of an exclusive job write to.
func (x *chaos) witness(job string) string { return filepath.Join(x.c.path("witness"), job) }

// learn converts a job file into a spec of the API, and stores it in specs.
func (w *workload) learn(name, text string) {
	w.x.t.Helper()
	var spec map[string]any
	if err := json.Unmarshal([]byte(w.x.c.must(w.x.t, "job", "validate", w.x.c.writeText(w.x.t, name+".hcl", text),
		"--json")), &spec); err != nil {
		w.x.t.Fatal(err)
	}
	w.specs[name] = spec
}

// spec returns the body of a request that submits the spec of one job under the given name. Each value of n makes a
// different version of the job.
func (w *workload) spec(of, name string, n int64) string {
	spec := maps.Clone(w.specs[of])
	spec["name"] = name
	group := maps.Clone(spec["groups"].([]any)[0].(map[string]any))
	group["env"] = map[string]string{"N": fmt.Sprint(n)}
	w.mu.Lock()
	switch of {
	case "web":
		group["count"] = w.web
	case "box":
		group["count"] = w.box
	}
	w.mu.Unlock()
	w.x.crates.choose(group, n)
	spec["groups"] = []any{group}
	text, _ := json.Marshal(map[string]any{"job": spec}) // can't fail, because spec was decoded from JSON
	return string(text)
}

func (w *workload) submitAll() {
	w.x.t.Helper()
	for _, name := range slices.Sorted(maps.Keys(w.specs)) {
		if name == "churn" {
			continue
		}
		if r := w.order(rand.New(rand.NewPCG(w.x.seed, 99)), http.MethodPost, "/v1/jobs", w.spec(name, name, 0)); !r.done {
			w.x.t.Fatalf("submit %s: %+v", name, r)
		}
	}
	for name, count := range w.wanted() {
		w.x.c.waitReady(w.x.t, name, count)
	}
}

func (w *workload) start() {
	for i, do := range []struct {
		pause time.Duration
		step  func(*rand.Rand)
	}{
		{60 * time.Millisecond, w.labeller("n1", "one")},
		{90 * time.Millisecond, w.labeller("n2", "two")},
		{150 * time.Millisecond, w.keepLedger},
		{900 * time.Millisecond, w.churnJobs},
		{2 * time.Second, w.changeWeb},
		{3 * time.Second, w.changeBox},
		{1500 * time.Millisecond, w.evict},
		{5 * time.Second, w.drain},
	} {
		random := rand.New(rand.NewPCG(w.x.seed, uint64(100+i)))
		w.done.Go(func() {
			for {
				select {
				case <-w.quit:
					return
				case <-time.After(do.pause/2 + rand.N(do.pause)):
				}
				w.gate.RLock()
				do.step(random)
				w.gate.RUnlock()
			}
		})
	}
}

func (w *workload) stop() {
	close(w.quit)
	w.done.Wait()
}

// fate is the outcome of a write.
type fate struct {
	done    bool // acknowledged; if neither done nor unknown is true, the write was refused
	unknown bool
	request string
	status  int
	body    string
}

// order sends a write to random servers, with the same request id, until its outcome is known. If the outcome is still
// unknown after 2*chaosPatience, it records a violation.
func (w *workload) order(random *rand.Rand, method, path, body string) fate {
	f := fate{request: fmt.Sprintf("chaos-%d", w.count.Add(1)), unknown: true}
	w.x.book.count("commands", 1)
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	// On each server's socket the caller is another user. So the server whose try was carried out is the one that tells
	// its outcome.
	var tried []*member
	taken := false
	for until := time.Now().Add(2 * chaosPatience); time.Now().Before(until); {
		among := w.x.c.servers
		if taken {
			among = tried
		}
		s := among[random.IntN(len(among))]
		tried = append(tried, s)
		a, err := s.ask(method, path+sep+"request_id="+f.request, body, 4*time.Second)
		switch {
		case err == nil && len(tried) > 1 && strings.Contains(string(a.body), string(model.CodeRequestConflict)):
			taken = true
			continue
		case err != nil || a.status == http.StatusTooManyRequests || a.status >= 500:
			w.x.book.count("commands tried again", 1)
			f.body = fmt.Sprint(err, string(a.body))
			time.Sleep(50 * time.Millisecond)
			continue
		case a.status == http.StatusOK || a.status == http.StatusCreated:
			f.done = true
			w.x.book.count("commands acknowledged", 1)
		default:
			w.x.book.count("commands refused", 1)
		}
		f.unknown, f.status, f.body = false, a.status, string(a.body)
		return f
	}
	w.x.book.violate("L1: the outcome of %s %s (request %s) was not to be learned in %s: %s", method, path,
		f.request, 2*chaosPatience, f.body)
	return f
}

// ask sends a request to the member's API socket, with a time limit.
func (m *member) ask(method, path, body string, limit time.Duration) (answered, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://outspan"+path, strings.NewReader(body))
	if err != nil {
		return answered{}, err
	}
	r.Header.Set("Accept", "application/x-ndjson, application/json")
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", m.socket())
		}}
	return ask(&http.Client{Transport: transport}, r)
}

// labeller returns a worker's step, which writes the next number to one label of one node. checkMarks checks that the
// label has the last acknowledged number.
func (w *workload) labeller(node, label string) func(*rand.Rand) {
	n := 0
	return func(random *rand.Rand) {
		n++
		f := w.order(random, http.MethodPost, "/v1/nodes/"+node+"/label", fmt.Sprintf(`{"labels":{%q:"%d"}}`, label, n))
		switch {
		case f.done:
			w.mu.Lock()
			w.marks[label] = mark{node, label, fmt.Sprint(n)}
			w.mu.Unlock()
		case !f.unknown:
			w.x.book.violate("S4: a label was refused: %+v", f)
		}
	}
}

// keepLedger submits a version of the job ledger. checkLedger looks for the acknowledged requests in the events.
func (w *workload) keepLedger(random *rand.Rand) {
	f := w.order(random, http.MethodPost, "/v1/jobs", w.spec(ledgerJob, ledgerJob, w.count.Load()))
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case f.done:
		w.booked = append(w.booked, f.request)
	case !f.unknown:
		w.refuse = append(w.refuse, f.request)
	}
}

func (w *workload) churnJobs(random *rand.Rand) {
	name := fmt.Sprintf("churn%d", random.IntN(3))
	w.mu.Lock()
	state := w.churn[name]
	w.mu.Unlock()
	switch {
	case state == 0:
		if w.order(random, http.MethodPost, "/v1/jobs", w.spec("churn", name, w.count.Load())).done {
			state = 1
		}
	case random.IntN(2) == 0:
		if n := 1 +
			random.IntN(3); w.order(random, http.MethodPost, "/v1/jobs/"+name+"/scale", fmt.Sprintf(`{"count":%d}`, n)).done {
			state = n
		}
	default:
		if w.order(random, http.MethodPost, "/v1/jobs/"+name+"/stop", `{"purge":true}`).done {
			state = 0
		}
	}
	w.mu.Lock()
	w.churn[name] = state
	w.mu.Unlock()
}

// changeWeb starts a rollout of the web service or changes its count.
func (w *workload) changeWeb(random *rand.Rand) {
	if random.IntN(2) == 0 {
		if w.order(random, http.MethodPost, "/v1/jobs", w.spec("web", "web", w.count.Load())).done {
			w.x.book.count("rollouts", 1)
		}
		return
	}
	n := 5 + random.IntN(4)
	if w.order(random, http.MethodPost, "/v1/jobs/web/scale", fmt.Sprintf(`{"count":%d}`, n)).done {
		w.mu.Lock()
		w.web = n
		w.mu.Unlock()
	}
}

// evict requests the eviction of a random instance. The budget decides when the instance stops.
func (w *workload) evict(random *rand.Rand) {
	var l struct{ Items []instanceView }
	a, err := w.x.c.servers[random.IntN(len(w.x.c.servers))].ask(http.MethodGet,
		"/v1/instances?job="+[]string{"web", "pool", "solo", "box", "lone"}[random.IntN(5)], "", 3*time.Second)
	if err != nil || json.Unmarshal(a.body, &l) != nil || len(l.Items) == 0 {
		return
	}
	if w.order(random, http.MethodPost, "/v1/instances/"+l.Items[random.IntN(len(l.Items))].ID+"/evict", "{}").done {
		w.x.book.count("evictions", 1)
	}
}

// drain empties a node, or makes all nodes accept instances again.
func (w *workload) drain(random *rand.Rand) {
	node := w.x.c.agents[random.IntN(len(w.x.c.agents))].Name
	if random.IntN(3) > 0 {
		body := fmt.Sprintf(`{"deadline":"%ds"}`, 8+random.IntN(10))
		if w.order(random, http.MethodPost, "/v1/nodes/"+node+"/drain", body).done {
			w.x.book.count("drains", 1)
		}
		if node == "n1" && random.IntN(2) == 0 { // the local volume of job base can't leave n1
			w.order(random, http.MethodPost, "/v1/nodes/n1/ack-blockers", "{}")
		}
		return
	}
	for _, m := range w.x.c.agents {
		w.order(random, http.MethodPost, "/v1/nodes/"+m.Name+"/uncordon", "{}") // refused if the node is not cordoned
	}
}

// checkLedger checks S4: the events contain each acknowledged request of the job ledger exactly once, and no refused
// one.
func (w *workload) checkLedger() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, request := range w.booked {
		if n := w.x.story.holds(request); n != 1 {
			w.x.book.violate("S4: request %s was acknowledged, and stands in the history %d times", request, n)
		}
	}
	for _, request := range w.refuse {
		if n := w.x.story.holds(request); n != 0 {
			w.x.book.violate("S4: request %s was refused, and stands in the history %d times", request, n)
		}
	}
	w.x.book.count("acknowledged commands looked up in the history", len(w.booked))
	w.booked, w.refuse = nil, nil
}

// wanted returns how many instances each job should have.
func (w *workload) wanted() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	counts := maps.Clone(chaosCounts)
	counts["web"], counts["box"] = w.web, w.box
	if !w.x.crates.used() {
		delete(counts, "box")
		delete(counts, "lone")
	}
	for name, n := range w.churn {
		if n > 0 {
			counts[name] = n
		}
	}
	return counts
}
