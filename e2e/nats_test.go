package e2e

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// natsClient speaks as much of the NATS protocol as the test needs, one request at a time. It can't be used after an
// error.
type natsClient struct {
	conn  net.Conn
	in    *bufio.Reader
	inbox string // subject to which answers are sent
}

const natsWait = 3 * time.Second

func dialNATS(address string) (*natsClient, error) {
	conn, err := net.DialTimeout("tcp", address, natsWait)
	if err != nil {
		return nil, err
	}
	n := &natsClient{conn, bufio.NewReader(conn), "_INBOX." + strings.NewReplacer(".", "-", ":", "-").
		Replace(conn.LocalAddr().String())}
	_ = conn.SetDeadline(time.Now().Add(natsWait))
	fmt.Fprintf(conn, "CONNECT {\"verbose\":false}\r\nSUB %s 1\r\nPING\r\n", n.inbox)
	for line := ""; err == nil && line != "PONG"; {
		line, err = n.line()
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return n, nil
}

func (n *natsClient) line() (string, error) {
	line, err := n.in.ReadString('\n')
	if strings.HasPrefix(line, "-ERR") {
		err = fmt.Errorf("nats: %s", line)
	}
	return strings.TrimSpace(line), err
}

// request sends a request to a subject and decodes the answer.
func (n *natsClient) request(subject string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	_ = n.conn.SetDeadline(time.Now().Add(natsWait))
	fmt.Fprintf(n.conn, "PUB %s %s %d\r\n%s\r\n", subject, n.inbox, len(body), body)
	for {
		line, err := n.line()
		if err != nil {
			return err
		}
		words := strings.Fields(line)
		switch {
		case line == "PING":
			fmt.Fprint(n.conn, "PONG\r\n")
		case len(words) > 0 && words[0] == "MSG":
			size, err := strconv.Atoi(words[len(words)-1])
			if err != nil {
				return err
			}
			text := make([]byte, size+2)
			if _, err := io.ReadFull(n.in, text); err != nil {
				return err
			}
			var failed struct{ Error *struct{ Description string } }
			if err := json.Unmarshal(bytes.TrimSpace(text), &failed); err != nil || failed.Error != nil {
				return fmt.Errorf("%s: %s", subject, text)
			}
			return json.Unmarshal(text, answer)
		}
	}
}

// natsCalls sends requests through an agent's exposed port. It keeps its connection until a request fails. Then it
// connects to the next agent.
type natsCalls struct {
	c    *cluster
	port int
	n    int
	conn *natsClient
}

func (a *natsCalls) request(subject string, question, answer any) (err error) {
	if a.conn == nil {
		a.n++
		at := a.c.agents[a.n%len(a.c.agents)]
		if a.conn, err = dialNATS(net.JoinHostPort(at.address, strconv.Itoa(a.port))); err != nil {
			return err
		}
	}
	if err = a.conn.request(subject, question, answer); err != nil {
		a.conn.conn.Close()
		a.conn = nil
	}
	return err
}

// watchMembers samples the process table until stop is called. stop returns the samples in which two processes had the
// same member id.
func (c *cluster) watchMembers(job string) (stop func() []string) {
	var twice []string
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			of := map[string][]string{}
			for _, ps := range c.instancesOf(job) {
				for _, p := range ps {
					if strings.HasPrefix(p.Args(), "nats-server\x00") {
						id := environment(p)["OUTSPAN_MEMBER_ID"]
						of[id] = append(of[id], p.String())
					}
				}
			}
			for id, ps := range of {
				if len(ps) > 1 {
					twice = append(twice, fmt.Sprint(id, ": ", ps))
				}
			}
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() []string { close(done); wg.Wait(); return twice }
}

// TestNats runs three members of NATS JetStream with volumes. They find each other by OUTSPAN_PEERS, and messages are
// published all the time. Each machine is drained in turn, and the leader is killed during one of these drains. One
// machine dies, and all servers are down for a while.
//
// No acknowledged message is lost, at least two members always run, and no member ever has two processes.
func TestNats(t *testing.T) {
	long(t)
	t.Parallel()
	require(t, "nats-server")
	c := startCluster(t, options{servers: 3, agents: 4})
	port := c.freePort(t)
	c.must(t, "job", "run", c.example(t, "nats", "14222", strconv.Itoa(port), "/srv/outspan-nats", c.path("nats-data")),
		"--detach")
	c.waitReady(t, "nats", 3)

	admin := &natsCalls{c: c, port: port}
	stream := map[string]any{"name": "W", "subjects": []string{"w.>"}, "num_replicas": 3, "storage": "file"}
	waitFor(t, "the stream", patience, func() error {
		return admin.request("$JS.API.STREAM.CREATE.W", stream, &struct{}{})
	})
	calls := &natsCalls{c: c, port: port}
	w := &writer{write: func(n int) error {
		var ack struct{ Seq uint64 }
		err := calls.request(fmt.Sprintf("w.%d", n), n, &ack)
		if err == nil && ack.Seq == 0 {
			err = fmt.Errorf("message %d was not acknowledged", n)
		}
		return err
	}}
	stopWriting, stopSampling, stopWatching := w.begin(t), c.sample("nats", "default"), c.watchMembers("nats")
	never := func(during string, ready int) { // asserts that two members always ran, and the given number was always ready
		t.Helper()
		s := stopSampling()
		t.Logf("%s: %v", during, s)
		if s.alive < 2 || s.ready < ready {
			t.Errorf("%s only %d members ran and %d were ready at a time\n%s", during, s.alive, s.ready, s.atLeast)
		}
	}
	defer stopWriting()

	for i, name := range []string{"n1", "n2", "n3", "n4"} {
		if i == 1 {
			c.drainLeading(t, name)
		} else {
			c.cli(t, "node", "drain", name).want(t, 0)
		}
		c.must(t, "node", "uncordon", name)
		c.waitReady(t, "nats", 3)
	}

	never("drains", 2)

	stopSampling = c.sample("nats", "default")
	holder := c.member(c.living(t, "nats")[0].Node)
	died := time.Now()
	holder.die(t)
	c.waitOffline(t, holder, died)
	c.must(t, "node", "confirm-dead", holder.Name, "--force")
	waitFor(t, "another member in the place of the one that died", patience, func() error {
		if living := c.living(t, "nats"); slices.ContainsFunc(living, func(i instanceView) bool {
			return i.Node == holder.Name
		}) {
			return fmt.Errorf("%+v", living)
		}
		return nil
	})
	c.waitReady(t, "nats", 3)
	holder.start(t)
	c.waitHeard(t)
	// If the members' own leader died, the check "current" may fail at all members until they have elected another one.
	never("a machine's death", 0)

	stopSampling = c.sample("nats", "default")
	for _, s := range c.servers {
		s.Kill()
	}
	acked := w.acked.Load()
	time.Sleep(3 * offlineAfter) // longer than the time after which a silent node is marked offline
	if more := w.acked.Load() - acked; more == 0 {
		t.Error("no message was acknowledged while all servers were away")
	}
	for _, s := range c.servers {
		s.start(t)
	}
	c.waitVoters(t, 3)
	c.waitHeard(t)
	c.waitReady(t, "nats", 3)

	stopWriting()
	never("all servers' absence", 2)
	t.Logf("%v", w)
	if twice := stopWatching(); len(twice) > 0 {
		t.Errorf("%d times a member ran twice, such as %s", len(twice), twice[0])
	}
	for n := range int(w.acked.Load()) {
		var got struct{ Message struct{ Data string } }
		waitFor(t, fmt.Sprintf("message %d", n), patience, func() error {
			return admin.request("$JS.API.STREAM.MSG.GET.W", map[string]string{"last_by_subj": fmt.Sprintf("w.%d", n)}, &got)
		})
		if text, _ := base64.StdEncoding.DecodeString(got.Message.Data); string(text) != strconv.Itoa(n) {
			t.Fatalf("acknowledged message %d is %q", n, text)
		}
	}
}
