package e2e

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// long skips a test that takes long, if the flag -short is set as in make test. The command make systems runs the test.
func long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it takes long: make systems")
	}
}

// example copies the directory of an example to a place where the nodes find it. It returns the path of a job file that
// uses this copy. The parameter replace lists further replacements for the job file, as pairs of an old and a new word.
func (c *cluster) example(t testing.TB, name string, replace ...string) string {
	t.Helper()
	from, to := filepath.Join(repository(t), "examples", name), c.path(name)
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(to)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if err := os.Chmod(filepath.Join(to, f.Name()), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(filepath.Join(from, name+".hcl"))
	if err != nil {
		t.Fatal(err)
	}
	replace = append(replace, "/opt/"+name, to)
	return c.writeText(t, name+".hcl", strings.NewReplacer(replace...).Replace(string(text)))
}

// writer writes the values 0, 1, 2 and so on while a test does something else. It repeats the write of a value until
// the write is acknowledged.
type writer struct {
	write   func(n int) error
	acked   atomic.Int64 // number of values whose write was acknowledged
	retried atomic.Int64 // number of writes that failed and were repeated
	longest atomic.Int64 // longest time until a value was acknowledged, in ms
}

// begin writes in a goroutine until stop is called. It fails the test if a value is not acknowledged within patience.
func (w *writer) begin(t *testing.T) (stop func()) {
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for n := 0; ; n++ {
			began := time.Now()
			for {
				select {
				case <-done:
					return
				default:
				}
				err := w.write(n)
				if err == nil {
					break
				}
				w.retried.Add(1)
				if time.Since(began) > patience {
					t.Errorf("write %d: %v", n, err)
					return
				}
				time.Sleep(20 * time.Millisecond)
			}
			w.longest.Store(max(w.longest.Load(), time.Since(began).Milliseconds()))
			w.acked.Store(int64(n + 1))
			time.Sleep(5 * time.Millisecond)
		}
	})
	return sync.OnceFunc(func() { close(done); running.Wait() })
}

func (w *writer) String() string {
	return fmt.Sprintf("%d writes acknowledged, %d tries more, the longest took %d ms", w.acked.Load(),
		w.retried.Load(), w.longest.Load())
}

// factsOf returns the instances of a job that are not terminal, by id. Each has its latest facts.
func (c *cluster) factsOf(t testing.TB, job string) map[string]instanceView {
	t.Helper()
	found := map[string]instanceView{}
	for _, i := range c.living(t, job) {
		found[i.ID] = i
	}
	return found
}

// watchFacts records the latest facts of each instance of a job until stop is called. The function stop returns them by
// instance id.
func (c *cluster) watchFacts(job string) (stop func() map[string]map[string]string) {
	last := map[string]map[string]string{}
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(5 * time.Millisecond):
			}
			var l struct{ Items []instanceView }
			if c.get("/v1/instances?job="+job+"&consistency=stale", &l) != nil {
				continue // no server answered; the next round asks again
			}
			for _, i := range l.Items {
				if len(i.Facts) > 0 {
					last[i.ID] = i.Facts
				}
			}
		}
	})
	return func() map[string]map[string]string {
		close(done)
		running.Wait()
		return last
	}
}

// drainLeading drains a node and kills outspan's leading server as soon as the drain has begun. It waits until the node
// is drained, and then starts the killed server again.
func (c *cluster) drainLeading(t *testing.T, node string) {
	t.Helper()
	var reply drainReply
	c.mustJSON(t, &reply, "node", "drain", node, "--detach")
	dead := c.leader(t)
	dead.Kill()
	c.cli(t, "drain", "status", reply.Drain, "--wait=drained", "--timeout", "90s").want(t, 0)
	if d := c.drain(t, reply.Drain); d.Phase != "drained" {
		t.Errorf("%+v", d)
	}
	dead.start(t)
}

// TestEtcd drains four nodes, one after the other, while a client writes to an etcd with three members on these nodes.
// During the second drain, outspan's leading server is killed.
//
// No acknowledged write is lost, two members of etcd are always ready, and no member is stopped while it leads etcd.
// proves A8, R23
func TestEtcd(t *testing.T) {
	long(t)
	t.Parallel()
	require(t, "etcd", "etcdctl")
	c := startCluster(t, options{servers: 3, agents: 4})
	port := c.freePort(t)
	c.must(t, "job", "run", c.example(t, "etcd", "12379", strconv.Itoa(port)), "--detach")
	c.waitReady(t, "etcd", 3)

	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	call := func(node *member, path string, in, out any) error {
		body, _ := json.Marshal(in)
		resp, err := client.Post("http://"+net.JoinHostPort(node.address, strconv.Itoa(port))+"/v3/kv/"+path,
			"application/json", bytes.NewReader(body))
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusOK {
			return fmt.Errorf("%s: %s", resp.Status, text)
		}
		return json.Unmarshal(text, out)
	}
	key := func(n int) string { return base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "k%06d", n)) }
	w := &writer{write: func(n int) error {
		return call(c.agents[n%len(c.agents)], "put", map[string]string{"key": key(n), "value": key(n)}, &struct{}{})
	}}
	stopWriting, stopSampling := w.begin(t), c.sample("etcd", "default")
	defer stopWriting()

	led := 0
	var drained []string
	facts := c.watchFacts("etcd")
	nodes := []string{"n1", "n2", "n3", "n4"}
	for i := range nodes {
		before := c.factsOf(t, "etcd")
		for _, old := range before { // the node of etcd's leader is next, unless it was drained
			if k := slices.Index(nodes, old.Node); old.Facts["leader"] == "true" && k > i {
				nodes[i], nodes[k] = nodes[k], nodes[i]
			}
		}
		name := nodes[i]
		if i == 1 {
			c.drainLeading(t, name)
		} else {
			c.cli(t, "node", "drain", name).want(t, 0)
		}
		for id, old := range before {
			if old.Node != name {
				continue
			}
			if old.Facts["leader"] == "true" {
				led++
			}
			if i != 1 { // while outspan has no leader, watchFacts may miss the last facts
				drained = append(drained, id)
			}
			if now := c.instance(t, id); now.Desired != "stopped" {
				t.Errorf("instance %s is left on %s: %+v", id, name, now)
			}
		}
		c.must(t, "node", "uncordon", name)
		c.waitReady(t, "etcd", 3)
	}
	stopWriting()
	samples, said := stopSampling(), facts()
	for _, id := range drained {
		if said[id]["leader"] != "false" {
			t.Errorf("instance %s was stopped as %v", id, said[id])
		}
	}
	t.Logf("%v; %v; the leader was drained %d times", w, samples, led)
	if led == 0 {
		t.Error("no drain met the leader")
	}
	if samples.ready < 2 {
		t.Errorf("only %d members were ready at a time", samples.ready)
	}
	for n := range int(w.acked.Load()) {
		var got struct{ Kvs []struct{ Value string } }
		waitFor(t, "an answer of etcd", patience, func() error { // etcd may be electing a leader
			return call(c.agents[0], "range", map[string]string{"key": key(n)}, &got)
		})
		if len(got.Kvs) != 1 || got.Kvs[0].Value != key(n) {
			t.Fatalf("acknowledged write %d is %v", n, got)
		}
	}
}

// TestRedis drains the node of a Redis group's leader while a client writes, and then the node of the next leader.
// During the second drain, outspan's leading server is killed.
//
// A Redis leader hands over before it is stopped, and no acknowledged write is lost.
// proves A10
func TestRedis(t *testing.T) {
	long(t)
	require(t, "redis-server", "redis-cli")
	c := startCluster(t, options{servers: 3, agents: 4})
	port := c.freePort(t)
	c.must(t, "job", "run", c.example(t, "redis", "16379", strconv.Itoa(port)), "--detach")
	c.waitReady(t, "redis", 3)

	redis := func(host, port string, args ...string) (string, error) {
		out, err := exec.Command("redis-cli", append([]string{"-h", host, "-p", port, "-e"}, args...)...).Output()
		return strings.TrimSpace(string(out)), err
	}
	// leads returns the host and the port of the Redis leader. The number n selects the agent that it asks.
	leads := func(n int) (host, at string, err error) {
		text, err := redis(c.agents[n%len(c.agents)].address, strconv.Itoa(port), "get", "outspan:leader")
		host, at, ok := strings.Cut(text, " ")
		if err == nil && !ok {
			err = fmt.Errorf("nobody leads: %q", text)
		}
		return host, at, err
	}
	w := &writer{write: func(n int) error {
		host, at, err := leads(n)
		if err != nil {
			return err
		}
		answer, err := redis(host, at, "set", fmt.Sprintf("k%06d", n), strconv.Itoa(n))
		if err == nil && answer != "OK" {
			err = fmt.Errorf("%s", answer)
		}
		return err
	}}
	stopWriting := w.begin(t)
	defer stopWriting()
	for round := range 2 {
		var leader instanceView
		waitFor(t, "a leader that the servers know", patience, func() error {
			for _, i := range c.living(t, "redis") {
				if i.Facts["leader"] == "true" {
					leader = i
					return nil
				}
			}
			return fmt.Errorf("%v", c.factsOf(t, "redis"))
		})
		facts := c.watchFacts("redis")
		if round == 1 {
			c.drainLeading(t, leader.Node)
		} else {
			c.cli(t, "node", "drain", leader.Node).want(t, 0)
		}
		said := facts()
		seen := round == 0 // while outspan has no leader, watchFacts may miss the last facts
		if now := c.instance(t, leader.ID); seen && said[leader.ID]["leader"] != "false" || now.Desired != "stopped" {
			t.Errorf("the leader was stopped as %+v, and said last %v", now, said[leader.ID])
		}
		c.must(t, "node", "uncordon", leader.Node)
		c.waitReady(t, "redis", 3)
	}
	stopWriting()
	t.Log(w)
	host, at, err := leads(0)
	if err != nil {
		t.Fatal(err)
	}
	text, err := redis(host, at, append([]string{"mget"}, redisKeys(int(w.acked.Load()))...)...)
	if err != nil {
		t.Fatal(err)
	}
	for n, value := range strings.Split(text, "\n") {
		if value != strconv.Itoa(n) {
			t.Fatalf("acknowledged write %d is %q", n, value)
		}
	}
}

func redisKeys(n int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("k%06d", i)
	}
	return slices.Clip(keys)
}
