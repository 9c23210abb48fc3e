package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// database is a cluster that runs the example postgres: a primary, and replicas that have copies of its data.
type database struct {
	*cluster
	port   int
	writer *writer
}

// startDatabase runs the database with two replicas and waits until both are in sync.
func startDatabase(t *testing.T) *database {
	t.Helper()
	require(t, "psql")
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb"); len(found) == 0 {
		lacking(t, "a PostgreSQL server")
	}
	db := &database{cluster: startCluster(t, options{servers: 3, agents: 4})}
	db.port = db.freePort(t)
	apart := func(operator string) string { // the primary runs on n4, the replicas on the other nodes
		return fmt.Sprintf("    constraint {\n      attribute = \"node.name\"\n"+
			"      operator  = %q\n      value     = \"n4\"\n    }\n", operator)
	}
	file := db.example(t, "postgres", "15432", strconv.Itoa(db.port), "15433", strconv.Itoa(db.port+1),
		"  group \"primary\" {\n", "  group \"primary\" {\n"+apart("="), "  group \"replica\" {\n",
		"  group \"replica\" {\n    budget {\n      max_down = 2 # so that nothing but the policy holds\n    }\n"+apart("!="))
	db.must(t, "job", "run", file, "--detach")
	db.waitInSync(t, 2)
	db.writer = &writer{write: func(n int) error {
		_, err := db.query(fmt.Sprintf("insert into written values (%d) on conflict do nothing", n))
		return err
	}}
	if _, err := db.query("create table written (n int primary key)"); err != nil {
		t.Fatal(err)
	}
	return db
}

// query sends SQL to the primary, through the first agent that answers.
func (db *database) query(sql string) (string, error) {
	var failed error
	for _, a := range db.agents {
		cmd := exec.Command("psql", "-h", a.address, "-p", strconv.Itoa(db.port), "-U", "postgres",
			"-d", "postgres", "-Atqc", sql)
		cmd.Env = append(cmd.Environ(), "PGPASSWORD=change-me", "PGCONNECT_TIMEOUT=2")
		out, err := cmd.CombinedOutput()
		if err == nil {
			return strings.TrimSpace(string(out)), nil
		}
		failed = fmt.Errorf("%s %w", out, err)
	}
	return "", failed
}

// replicas returns the replicas that should run.
func (db *database) replicas(t testing.TB) []instanceView {
	t.Helper()
	return slices.DeleteFunc(db.living(t, "postgres"), func(i instanceView) bool {
		return i.Group != "replica" || i.Desired != "running"
	})
}

func (db *database) inSync(t testing.TB) int {
	t.Helper()
	n := 0
	for _, i := range db.replicas(t) {
		if i.Ready && i.Facts["in_sync"] == "true" {
			n++
		}
	}
	return n
}

func (db *database) waitInSync(t testing.TB, count int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d replicas in sync", count), 2*patience, func() error {
		if n := db.inSync(t); n != count || len(db.replicas(t)) != count {
			return fmt.Errorf("%d of %v are in sync", n, db.replicas(t))
		}
		return nil
	})
}

// restore makes a drained node active and waits until two replicas are in sync.
func (db *database) restore(t testing.TB, node string) {
	t.Helper()
	db.must(t, "node", "uncordon", node)
	db.waitInSync(t, 2)
}

// TestPolicies drains nodes with replicas of a real database under each of the five policies while a client writes.
// During one drain the leader is killed.
//
// proves L1, L2, L4, L5, L6, L13, L17, L18
func TestPolicies(t *testing.T) {
	long(t)
	db := startDatabase(t)
	stop := db.writer.begin(t)
	defer stop()
	for _, part := range []struct {
		policy string
		test   func(*testing.T, *database)
	}{
		{"always-allow", testStoppedInPlace},
		{"allow-if-replica-is-stopped", testStoppedInPlace},
		{"block-if-contains-last-replica", testStoppedInPlace},
		{"block-for-eviction", testBuiltElsewhere},
		{"block-if-contains-last-replica", testLastBlocks},
		{"block-for-eviction-if-contains-last-replica", testLastIsMoved},
	} {
		t.Run(part.policy, func(t *testing.T) {
			db.must(t, "settings", "set", "node_drain_policy="+part.policy)
			part.test(t, db)
		})
	}
	stop()
	t.Log(db.writer)
	count, err := db.query("select count(*) from written")
	if n, _ := strconv.Atoi(count); err != nil || n < int(db.writer.acked.Load()) {
		t.Errorf("%s rows (%v), %d writes were acknowledged", count, err, db.writer.acked.Load())
	}
}

// In testStoppedInPlace another healthy replica exists, so the drained replica is stopped without a replacement. After
// the drain it starts again on the same node, with its copy.
func testStoppedInPlace(t *testing.T, db *database) {
	old := db.replicas(t)[0]
	db.cli(t, "node", "drain", old.Node, "--deadline", "60s").want(t, 0)
	if now := db.instance(t, old.ID); now.Desired != "stopped" || now.ReplacedBy != "" {
		t.Errorf("%+v", now)
	}
	if n := len(db.replicas(t)); n != 1 {
		t.Errorf("%d replicas are to run while the node is drained, want 1", n)
	}
	db.restore(t, old.Node)
	if !slices.ContainsFunc(db.replicas(t), func(i instanceView) bool {
		return i.Node == old.Node && i.Slot == old.Slot
	}) {
		t.Errorf("the member did not come back to %s: %+v", old.Node, db.replicas(t))
	}
}

// In testBuiltElsewhere the replica is built elsewhere before it is stopped, so the group always has all its copies.
// The leader is killed during the drain.
func testBuiltElsewhere(t *testing.T, db *database) {
	old := db.replicas(t)[0]
	least := 2
	synced := map[string]bool{} // instances that were once in sync; on a busy machine, a copy may lag for a moment
	watched, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(watched)
		for {
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
			var l struct{ Items []instanceView }
			if db.get("/v1/instances?job=postgres&group=replica&consistency=stale", &l) != nil {
				continue
			}
			n := 0
			for _, i := range l.Items {
				synced[i.ID] = synced[i.ID] || i.Facts["in_sync"] == "true"
				if i.Ready && synced[i.ID] {
					n++
				}
			}
			least = min(least, n)
		}
	}()
	before := db.status(t).Index
	db.drainLeading(t, old.Node)
	close(done)
	<-watched
	if least < 2 {
		t.Errorf("only %d replicas with a whole copy were there at a time", least)
	}
	var reasons []string
	for _, e := range db.since(t, before) {
		if e.Type == "instance.eviction_changed" && e.Subject == "instance/"+old.ID {
			reasons = append(reasons, e.Data["reason"])
		}
	}
	if !slices.Equal(reasons, []string{"EvictionAutomatic"}) {
		t.Errorf("the eviction of %s flipped as %v", old.ID, reasons)
	}
	db.restore(t, old.Node)
}

// In testLastBlocks the last healthy replica blocks the drain. When the policy is changed in the middle of the drain,
// the replica is stopped within 2 s.
func testLastBlocks(t *testing.T, db *database) {
	first, last := db.leaveOne(t)
	var reply drainReply
	db.mustJSON(t, &reply, "node", "drain", last.Node, "--detach")
	waitFor(t, "the blocker", patience, func() error {
		for _, b := range db.drain(t, reply.Drain).Nodes[0].Blockers {
			if b.Code == "replica_last_healthy" && b.Instance == last.ID && b.Volume != "" {
				return nil
			}
		}
		return fmt.Errorf("%+v", db.drain(t, reply.Drain))
	})
	if now := db.instance(t, last.ID); now.Desired != "running" || !now.Ready {
		t.Errorf("the last replica: %+v", now)
	}
	db.must(t, "settings", "set", "node_drain_policy=always-allow")
	switched := time.Now()
	waitFor(t, "the stop of what blocked", patience, func() error {
		if now := db.instance(t, last.ID); now.Desired == "running" {
			return fmt.Errorf("%+v", now)
		}
		return nil
	})
	took := time.Since(switched).Round(time.Millisecond)
	t.Logf("the switched policy acted after %s", took)
	if took > 2*time.Second {
		t.Errorf("the switched policy acted after %s, want within 2s", took)
	}
	db.cli(t, "drain", "status", reply.Drain, "--wait=drained", "--timeout", "60s").want(t, 0)
	db.must(t, "node", "uncordon", last.Node)
	db.restore(t, first)
}

// In testLastIsMoved the last healthy replica is built elsewhere before it is stopped.
func testLastIsMoved(t *testing.T, db *database) {
	first, last := db.leaveOne(t)
	db.cli(t, "node", "drain", last.Node, "--deadline", "90s").want(t, 0)
	if now := db.instance(t, last.ID); now.ReplacedBy == "" {
		t.Errorf("the last replica was not replaced: %+v", now)
	}
	if db.inSync(t) < 1 {
		t.Error("no replica is in sync after the drain")
	}
	db.must(t, "node", "uncordon", last.Node)
	db.restore(t, first)
}

// leaveOne drains the node of one replica, so that the other replica is the last healthy one.
func (db *database) leaveOne(t testing.TB) (drained string, last instanceView) {
	t.Helper()
	away := db.replicas(t)[0]
	db.must(t, "node", "drain", away.Node, "--policy", "always-allow")
	for _, i := range db.replicas(t) {
		last = i
	}
	if last.ID == "" || last.ID == away.ID {
		t.Fatalf("%+v", db.replicas(t))
	}
	return away.Node, last
}
