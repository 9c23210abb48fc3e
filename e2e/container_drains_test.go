package e2e

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/testbed/ctrd"
)

// drainsVariable says how often TestContainerDrains drains a node in a row.
const drainsVariable = "OUTSPAN_CONTAINER_DRAINS"

// startLimit is the cluster's start_timeout and the deadline of the deployments of TestContainerDrains. The pulls over
// the slow pipe take longer.
const startLimit = 10 * time.Second

// longestPause is how long a node may be left alone after a failed pull.
const longestPause = 5 * time.Minute

// moving is a cluster of two nodes whose containers come from registries that the test breaks.
type moving struct {
	*cluster
	rig          *containerRig
	open, locked *hub // locked asks for a password
	slow         *slowPipe
	ports        map[string]int // exposed port of each job
	stop         []func() probed
}

// Nodes are drained under 50 requests a second to each service of containers, while the images are missing on the
// target and their registries are slow, down, ask for a password or have lost the image; then in turn, again and again.
// No request fails.
func TestContainerDrains(t *testing.T) {
	long(t)
	t.Parallel()
	require(t, "containerd", "ctr", "runc", "busybox", "docker-registry")
	d := newMoving(t)
	_ = t.Run("Registries", d.registries) && t.Run("Cancelled", d.cancelled) && t.Run("InTurn", d.inTurn)
	if t.Failed() {
		return
	}
	d.reset(t)
	d.nothingOfContainers(t, d.rig)
}

// imageOf makes an image whose pages say that they are of the instance, with some KiB that nobody can compress.
func imageOf(t *testing.T, name string, kib int) ctrd.Image {
	t.Helper()
	body := make([]byte, kib<<10)
	_, _ = rand.NewChaCha8([32]byte([]byte(fmt.Sprintf("%-32s", name)))).Read(body)
	return siteImage(t, "instance of "+name, ctrd.File{Name: "padding", Mode: 0o644, Body: body})
}

func newMoving(t *testing.T) *moving {
	t.Helper()
	d := &moving{rig: newContainerRig(t), cluster: newCluster(t, options{servers: 1, agents: 2}), ports: map[string]int{}}
	d.rig.configure(t, d.cluster)
	d.open, d.locked = d.newHub(t, "open", false), d.newHub(t, "locked", true)
	d.slow = newSlowPipe(t, d.open)
	for _, m := range d.agents {
		m.writeCredentials(t, d.locked, hubPassword)
	}
	for _, m := range d.members() {
		m.start(t)
	}
	d.waitEligible(t, d.agents...)
	d.awaitRuntime(t, true)
	d.weigh(t)
	d.must(t, "settings", "set", "start_timeout="+startLimit.String())
	ports := d.freePorts(t, 5)
	for i, name := range []string{"web", "slow", "down", "private", "lost"} {
		d.ports[name] = ports[i]
	}
	return d
}

// submit runs a job of containers that serve at the job's exposed port, if it has one.
func (d *moving) submit(t *testing.T, name, image string, count int, more string) {
	t.Helper()
	service := ""
	if port := d.ports[name]; port != 0 {
		service = fmt.Sprintf("    service %q {\n      port   = \"http\"\n      expose = %d\n    }\n", name, port)
	}
	text := fmt.Sprintf(`job %q {
  group "site" {
    count = %d
    container { image = %q }
    resources { memory = "32MiB" }
    port "http" {}
%s    check "alive" {
      type     = "http"
      port     = "http"
      interval = "250ms"
    }
    update { deadline = %q }
%s
  }
}
`, name, count, image, service, startLimit, more)
	d.must(t, "job", "run", d.writeText(t, name+".hcl", text), "--detach")
}

// only has the jobs that are submitted next run on one of the two nodes.
func (d *moving) only(t *testing.T, on *member, then func()) {
	t.Helper()
	other := d.agents[0]
	if other == on {
		other = d.agents[1]
	}
	d.must(t, "node", "cordon", other.Name)
	then()
	d.must(t, "node", "uncordon", other.Name)
}

// registries drains n1 while three registries refuse and one is slow. The drain names what each says, and what runs
// goes on. When the registries work again, the drain ends by itself. Meanwhile, a deployment waits for a slow pull.
func (d *moving) registries(t *testing.T) {
	n1, n2 := d.agents[0], d.agents[1]
	lost := imageOf(t, "lost", 0)
	down := d.newHub(t, "down", false)
	viaPipe := func(name string) string {
		image := d.open.push(t, name, imageOf(t, name, 3<<10))
		return strings.Replace(image, strings.TrimPrefix(d.open.URL, "http://"), d.slow.address, 1)
	}
	slow, fresh := viaPipe("slow"), viaPipe("fresh")
	d.only(t, n1, func() {
		d.submit(t, "web", d.open.push(t, "web", imageOf(t, "web", 0)), 2, "    budget { min_ready = 2 }")
		d.submit(t, "slow", slow, 1, "")
		d.submit(t, "private", d.locked.push(t, "private", imageOf(t, "private", 0)), 1, "")
		d.submit(t, "lost", d.open.push(t, "lost", lost), 1, "")
		d.submit(t, "down", down.push(t, "down", imageOf(t, "down", 0)), 1, "    eviction { order = \"stop_first\" }")
		d.waitReady(t, "web", 2)
		for _, name := range []string{"slow", "private", "lost", "down"} {
			d.waitReady(t, name, 1)
		}
	})
	before := pids(d.instances(n1))
	if len(before) != 6 {
		t.Fatalf("n1 runs %v", before)
	}
	for _, name := range []string{"web", "slow", "private", "lost"} { // down is to stop before its replacement starts
		d.stop = append(d.stop, d.probe(d.ports[name], n1, n2))
	}

	d.slow.rate.Store(300 << 10)
	down.Kill()
	n2.writeCredentials(t, d.locked, "wrong")
	if err := d.open.Forget(t.Context(), "lost", lost.Digest); err != nil {
		t.Fatal(err)
	}
	dry := d.cli(t, "node", "drain", "n1", "--dry-run").out
	if n := strings.Count(dry, "node n2 must pull the image"); n < 5 {
		t.Errorf("the forecast names %d images that n2 lacks:\n%s", n, dry)
	}
	var reply drainReply
	old := d.instancesOf("web", n1)
	d.mustJSON(t, &reply, "node", "drain", "n1", "--detach")
	began := time.Now()
	d.submit(t, "fresh", fresh, 1, "")
	words := map[string]string{"down": "connection refused", "private": "401", "lost": "not found",
		"slow": "pulls the image"}
	d.awaitBlockers(t, reply.Drain, words)
	for name, id := range d.holders(t, slices.Collect(maps.Keys(words))...) {
		if why := d.cli(t, "why", id).out; !strings.Contains(why, words[name]) {
			t.Errorf("why %s does not say %q:\n%s", name, words[name], why)
		}
	}
	d.waitMoved(t, "web", n2, 2)
	d.checkDrainOrder(t, reply, old)
	d.must(t, "drain", "cancel", reply.Drain) // a node that is being drained has no forecast
	again := d.cli(t, "node", "drain", "n1", "--dry-run")
	d.mustJSON(t, &reply, "node", "drain", "n1", "--detach")
	for name, said := range words {
		if name != "slow" && !strings.Contains(again.out, said) {
			t.Errorf("the forecast does not say %q:\n%v", said, again)
		}
	}
	now := pids(d.instances(n1))
	for _, name := range []string{"down", "private", "lost"} {
		id := d.holders(t, name)[name]
		if i := d.instance(t, id); i.Node != "n1" || !i.Ready || !slices.Equal(now[id], before[id]) {
			t.Errorf("%s runs as %+v with %v, and had %v", name, i, now[id], before[id])
		}
	}

	down.begin(t)
	n2.writeCredentials(t, d.locked, hubPassword)
	d.open.push(t, "lost", lost)
	waitFor(t, "the end of the drain", longestPause+patience, func() error {
		if v := d.drain(t, reply.Drain); v.Phase != "drained" {
			return fmt.Errorf("%+v", v)
		}
		return nil
	})
	t.Logf("drained %s after the registries broke", time.Since(began).Round(time.Second))
	for _, name := range []string{"slow", "private", "lost", "down"} {
		d.waitMoved(t, name, n2, 1)
	}
	d.slowPullsFailNothing(t)
	d.slow.rate.Store(0)
	d.must(t, "node", "uncordon", "n1")
	for _, stop := range d.stop[1:] {
		stop().perfect(t)
	}
	d.stop = d.stop[:1]
	for _, name := range []string{"slow", "private", "lost", "down", "fresh"} {
		d.must(t, "job", "stop", name, "--purge")
	}
}

// awaitBlockers waits until the drain names for each job what its replacement waits for.
func (d *moving) awaitBlockers(t *testing.T, drain string, words map[string]string) {
	t.Helper()
	waitFor(t, "the registries' words in the drain's status", patience, func() error {
		said := map[string]string{}
		for _, b := range d.drain(t, drain).Nodes[0].Blockers {
			for name, id := range d.holders(t, slices.Collect(maps.Keys(words))...) {
				if id == b.Instance {
					said[name] = b.Code + ": " + b.Message
				}
			}
		}
		for name, want := range words {
			if !strings.Contains(said[name], want) {
				return fmt.Errorf("%s is blocked by %q, not by %q", name, said[name], want)
			}
		}
		text := d.cli(t, "drain", "status", drain).out
		for name, want := range words {
			if !strings.Contains(text, want) {
				return fmt.Errorf("drain status does not say %q of %s:\n%s", want, name, text)
			}
		}
		return nil
	})
}

// holders returns the oldest living instance of each job.
func (d *moving) holders(t *testing.T, jobs ...string) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, name := range jobs {
		if all := d.living(t, name); len(all) > 0 {
			found[name] = slices.MinFunc(all, func(a, b instanceView) int { return strings.Compare(a.ID, b.ID) }).ID
		}
	}
	return found
}

// waitMoved waits until all instances of a job are ready, on one node.
func (d *moving) waitMoved(t *testing.T, name string, on *member, count int) {
	t.Helper()
	d.waitReady(t, name, count)
	for _, i := range d.living(t, name) {
		if i.Node != on.Name {
			t.Errorf("%s runs on %s, want %s", i.ID, i.Node, on.Name)
		}
	}
}

// slowPullsFailNothing checks that the pulls over the slow pipe took longer than startLimit, and that no start and no
// deployment failed.
func (d *moving) slowPullsFailNothing(t *testing.T) {
	t.Helper()
	d.waitReady(t, "fresh", 1)
	var ordered time.Time
	var waited time.Duration
	for _, e := range d.events(t) {
		switch {
		case e.Type == "job.changed" && e.Subject == "job/fresh" && ordered.IsZero():
			ordered = e.Time
		case e.Type == "instance.allocated" && strings.HasPrefix(e.Data["group"], "fresh/"):
			waited = e.Time.Sub(ordered)
		case e.Type == "instance.status_changed" && e.Data["after"] == "failed":
			t.Errorf("an instance failed: %+v", e)
		}
	}
	if waited <= startLimit {
		t.Errorf("fresh was placed %s after it was submitted; the pull must take longer than %s", waited, startLimit)
	}
	for _, v := range list[struct{ Job, Status, Reason string }](t, d.cluster, "/v1/deployments") {
		if v.Status == "failed" {
			t.Errorf("a deployment failed: %+v", v)
		}
	}
}

// cancelled cancels a drain while the target pulls an image that nothing else needs.
func (d *moving) cancelled(t *testing.T) {
	n1, n2 := d.agents[0], d.agents[1]
	image := d.open.push(t, "late", imageOf(t, "late", 4<<10))
	d.only(t, n2, func() {
		d.submit(t, "late", strings.Replace(image, strings.TrimPrefix(d.open.URL, "http://"), d.slow.address, 1), 1, "")
		d.waitReady(t, "late", 1)
	})
	id := d.holders(t, "late")["late"]
	d.slow.rate.Store(100 << 10)
	passed := d.slow.passed.Load()
	var reply drainReply
	d.mustJSON(t, &reply, "node", "drain", "n2", "--detach")
	waitFor(t, "the pull", patience, func() error {
		if n := d.slow.passed.Load() - passed; n < 200<<10 || d.slow.held.Load() == 0 {
			return fmt.Errorf("%d bytes were pulled", n)
		}
		return nil
	})
	leases := func() []string { return d.rig.ctr(t, namespaceOf(d.node(t, n1)), "leases", "list", "-q") }
	pulls := func() []string {
		return slices.DeleteFunc(leases(), func(l string) bool { return strings.HasPrefix(l, "instance-") })
	}
	if len(pulls()) != 1 {
		t.Errorf("leases during the pull: %v", leases())
	}
	d.must(t, "drain", "cancel", reply.Drain)
	waitFor(t, "the end of the pull", patience, func() error {
		if n := d.slow.held.Load(); n > 0 {
			return fmt.Errorf("%d connections go on", n)
		}
		if left := pulls(); len(left) > 0 {
			return fmt.Errorf("the pull's lease is left: %v", left)
		}
		if left := d.rig.ctr(t, namespaceOf(d.node(t, n1)), "content", "active"); len(left) > 1 { // the first line is a head
			return fmt.Errorf("an unfinished layer is left: %v", left)
		}
		return nil
	})
	if i := d.instance(t, id); i.Node != "n2" || !i.Ready || i.Desired != "running" {
		t.Errorf("after the cancelled drain: %+v", i)
	}
	if why := d.cli(t, "why", id).out; strings.Contains(why, "image_pulling") {
		t.Errorf("something is still pulled:\n%s", why)
	}
	d.slow.rate.Store(0)
	d.must(t, "job", "stop", "late", "--purge")
	for _, m := range []*member{n1, n2} {
		d.must(t, "node", "uncordon", m.Name)
	}
	d.waitReady(t, "web", 2)
}

// inTurn drains the two nodes in turn. Both have the image, and containers move between them.
func (d *moving) inTurn(t *testing.T) {
	count := 12
	if text := os.Getenv(drainsVariable); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("%s=%s is not a number above 0", drainsVariable, text)
		}
		count = n
	}
	var took []time.Duration
	for n := range count {
		from, to := d.agents[n%2], d.agents[1-n%2]
		began := time.Now()
		d.must(t, "node", "drain", from.Name)
		took = append(took, time.Since(began))
		if left := d.empty(from); len(left) > 0 {
			t.Fatalf("drain %d of %s left %v", n, from.Name, left)
		}
		d.waitMoved(t, "web", to, 2)
		d.must(t, "node", "uncordon", from.Name)
	}
	seen := d.stop[0]()
	seen.perfect(t)
	slices.Sort(took)
	t.Logf("%d drains: %s to %s each, the median %s; %v", count, took[0].Round(time.Millisecond),
		took[count-1].Round(time.Millisecond), took[count/2].Round(time.Millisecond), seen)
}
