package bubble

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// chaos causes random faults in a world and gives it random work. At most two nodes are broken at the same time, and at
// most one server, except in loseAll. Only ask, send, sendBy and say are safe for concurrent use.
type chaos struct {
	w        *world
	random   *rand.Rand
	repairs  []repair
	versions int
	before   fsm.State // the state just before a snapshot was restored

	mu  sync.Mutex
	log []string
}

// repair ends one fault at a certain time.
type repair struct {
	at     time.Time
	what   any // the broken server or node, or the world if all servers are broken
	mend   func()
	server bool
}

func (c *chaos) say(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	c.log = append(c.log, time.Now().Format("04:05.000 ")+text)
	if kind := kindOf(text); kind != "" {
		c.w.did[kind]++
	}
}

// kindOf returns the words of a log line before the first colon, without words that contain a digit, a slash or a
// parenthesis. It returns "" for a line about the end of a fault or of the test.
func kindOf(text string) string {
	head, _, _ := strings.Cut(text, ":")
	words := slices.DeleteFunc(strings.Fields(head), func(w string) bool {
		return strings.ContainsAny(w, "0123456789/()")
	})
	kind := strings.Join(words, " ")
	if strings.HasPrefix(kind, "end of") || slices.Contains([]string{"mend", "restart", "settle", "recover"}, kind) {
		return ""
	}
	return kind
}

// run calls random functions from things for the given time, with pauses of up to 1.5 s. It ends each fault when its
// time has come. If the test fails, it logs what was done.
func (c *chaos) run(during time.Duration, things ...func()) {
	c.w.t.Cleanup(func() {
		if c.w.t.Failed() || os.Getenv("BUBBLE_LOG") != "" {
			c.w.t.Logf("what was done:\n%s\nthe last entries:\n%s", strings.Join(c.log, "\n"), c.w.history.tail())
		}
	})
	c.w.supervised.Store(true)
	for until := time.Now().Add(during); time.Now().Before(until); {
		time.Sleep(time.Duration(c.random.IntN(1500)) * time.Millisecond)
		c.mend(time.Now())
		things[c.random.IntN(len(things))]()
	}
}

// mend ends each fault whose end is at or before now. It also restarts servers that ended themselves because a handover
// of their leadership did not finish, unless they have a fault.
func (c *chaos) mend(now time.Time) {
	c.repairs = slices.DeleteFunc(c.repairs, func(r repair) bool {
		if now.Before(r.at) {
			return false
		}
		r.mend()
		return true
	})
	for _, s := range c.w.servers {
		if broken := slices.ContainsFunc(c.repairs, func(r repair) bool {
			return r.what == s
		}); !broken && s.stuck.Swap(false) && s.ended() {
			c.say("restart %s, whose leadership was not taken", s.name)
			s.again()
		}
	}
}

// settle ends all faults and drains. It fails the test unless the cluster comes to rest with the number of instances
// that want gives for each group, and writes nothing more.
func (c *chaos) settle(want map[model.GroupID]int) {
	w := c.w
	w.t.Helper()
	c.say("settle")
	w.net.Lose(0, 0)
	c.mend(time.Now().Add(time.Hour))
	w.net.Heal()
	w.leader()
	w.eventually(time.Minute, "no drain is left", func() bool {
		for _, n := range w.nodes {
			if n.row().Intent != model.IntentActive {
				_, _ = w.send("/v1/nodes/"+n.name+"/uncordon", nil)
			}
		}
		for _, n := range w.nodes {
			if n.row().Intent != model.IntentActive {
				return false
			}
		}
		return true
	})
	w.eventually(10*time.Minute, "everything that is wanted runs once, and nothing else", func() bool {
		return w.rests(want)
	})
	w.quiet()
	for id, count := range want {
		if got := len(w.members(id)); got != count {
			w.t.Errorf("%d instances of %s are wanted, its count is %d", got, id, count)
		}
	}
	w.agree()
}

// rests reports whether the cluster is at rest: each group in want has its number of ready instances, nothing else runs
// or must still stop, and nothing is in progress. During a rollout, each of these conditions may hold at some time, but
// never all of them at once.
func (w *world) rests(want map[model.GroupID]int) bool {
	st, total := w.state(), 0
	for id, count := range want {
		if g, ok := st.Groups.Get(id); !ok || g.Count != count {
			return false
		}
		total += count
	}
	for _, d := range st.Deployments.All() {
		if !d.Status.Ended() {
			return false
		}
	}
	for _, n := range st.Nodes.All() {
		if n.Health != model.HealthOnline || n.Return.Recovering {
			return false
		}
	}
	return !st.Hold.Active && w.unready() == "" && len(w.truth.running()) == total
}

func (c *chaos) node() *node { return c.w.nodes[c.random.IntN(len(c.w.nodes))] }

// ask sends a POST request and ignores its outcome, because during a fault the request may be refused or get no answer.
func (c *chaos) ask(path string, body any) { _ = c.send("POST", path, body) }

func (c *chaos) send(method, path string, body any) error {
	return c.sendBy(c.w.cli, method, path, body)
}

// sendBy sends one request through the given client, and records the outcome in the world's receipts.
func (c *chaos) sendBy(by *transport.Client, method, path string, body any) error {
	ctx, cancel := c.w.brief()
	defer cancel()
	id := ulid.Make().String()
	_, _, err := by.Do(ctx, method, path, url.Values{"request_id": {id}}, body)
	c.w.receipts.note(model.RequestID(id), method+" "+path, err)
	c.say("ask %s: %v", path, err)
	return err
}

func (c *chaos) drain() {
	c.ask("/v1/drains",
		choices{Nodes: []string{c.node().name}, Deadline: model.Duration(2+c.random.IntN(60)) * model.Second})
}

func (c *chaos) uncordon() {
	for _, n := range c.w.nodes {
		if n.row().Intent != model.IntentActive {
			c.ask("/v1/nodes/"+n.name+"/uncordon", nil)
			return
		}
	}
}

// evict requests the eviction of up to three instances of a random group at the same time.
func (c *chaos) evict() {
	st := c.w.state()
	var groups []model.GroupID
	for id := range st.Groups.All() {
		groups = append(groups, id)
	}
	ids := slices.Sorted(maps.Keys(c.w.members(groups[c.random.IntN(len(groups))])))
	c.random.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	var wg sync.WaitGroup
	for _, id := range ids[:min(len(ids), 1+c.random.IntN(3))] {
		wg.Go(func() { c.ask("/v1/instances/"+string(id)+"/evict", nil) })
	}
	wg.Wait()
}

// release submits a new version of a random job.
func (c *chaos) release() {
	st := c.w.state()
	var names []model.JobName
	for name := range st.Jobs.All() {
		names = append(names, name)
	}
	name := names[c.random.IntN(len(names))]
	job, _ := st.Jobs.Get(name)
	version, ok := st.JobVersion(name, job.Version)
	if !ok {
		return
	}
	spec := version.Spec
	spec.Groups = slices.Clone(spec.Groups)
	env := map[string]string{}
	for k, v := range spec.Groups[0].Env {
		env[k] = v
	}
	c.versions++
	env["RELEASE"] = fmt.Sprint(c.versions)
	spec.Groups[0].Env = env
	c.ask("/v1/jobs", map[string]any{"job": spec})
}

// broken returns the number of faults of servers that have not ended, or of faults of nodes if server is false.
func (c *chaos) broken(server bool) int {
	n := 0
	for _, r := range c.repairs {
		if r.server == server {
			n++
		}
	}
	return n
}

func (c *chaos) isBroken(what any) bool {
	return slices.ContainsFunc(c.repairs, func(r repair) bool { return r.what == what })
}

// until returns a random time for the end of a fault. Half of the faults last less than 2 s, and the others 2 to 11 s.
func (c *chaos) until() time.Time {
	if c.random.IntN(2) == 0 {
		return time.Now().Add(time.Duration(c.random.IntN(2000)) * time.Millisecond)
	}
	return time.Now().Add(time.Duration(2+c.random.IntN(10)) * time.Second)
}

func (c *chaos) kill(s *server) {
	if c.broken(true) > 0 || s == nil {
		return
	}
	c.say("kill %s", s.name)
	s.kill()
	c.repairs = append(c.repairs, repair{c.until(), s, func() {
		c.say("restart %s", s.name)
		s.restart()
	}, true})
}

func (c *chaos) killLeader() { c.kill(c.w.leads()) }

func (c *chaos) killServer() { c.kill(c.w.servers[c.random.IntN(3)]) }

// cutServer cuts a server off from the other servers, in one direction or in both.
func (c *chaos) cutServer() {
	if c.broken(true) > 0 {
		return
	}
	s := c.w.servers[c.random.IntN(3)]
	oneWay := c.random.IntN(3)
	c.say("cut %s off (%d)", s.name, oneWay)
	for _, other := range c.w.servers {
		if other == s {
			continue
		}
		if oneWay != 1 {
			c.w.net.Drop(s.host, other.host)
		}
		if oneWay != 2 {
			c.w.net.Drop(other.host, s.host)
		}
	}
	c.repairs = append(c.repairs, repair{c.until(), s, func() {
		c.say("mend %s", s.name)
		for _, other := range c.w.servers {
			c.w.net.Mend(s.host, other.host)
		}
	}, true})
}

// lossy makes the network lose 0, 10 or 20 % of the packets from now on.
func (c *chaos) lossy() {
	share := float64(c.random.IntN(3)) * 0.1
	c.say("lose %.1f", share)
	c.w.net.Lose(share, c.random.Uint64())
}

func (c *chaos) breakNode(what string, do func(*node), mend func(*node)) {
	n := c.node()
	if c.broken(false) > 1 || c.isBroken(n) {
		return
	}
	c.say("%s %s", what, n.name)
	do(n)
	c.repairs = append(c.repairs, repair{c.until(), n, func() {
		c.say("end of %s %s", what, n.name)
		mend(n)
	}, false})
}

func (c *chaos) powerOff() { c.breakNode("power off", (*node).powerOff, (*node).restart) }

func (c *chaos) killAgent() { c.breakNode("kill the agent of", (*node).killAgent, (*node).restart) }

func (c *chaos) cutNode() {
	if c.random.IntN(2) == 0 {
		c.breakNode("cut off", (*node).unplugAll, (*node).plugAll)
		return
	}
	s := c.w.servers[c.random.IntN(3)]
	c.breakNode("cut from "+s.name, func(n *node) { n.unplug(s) }, func(n *node) { n.plug(s) })
}
