package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// TestServersAway kills all servers for the time in OUTSPAN_AWAY, such as 10m, or by default for six times
// offline_after. While they are away, the programs of every role keep running, and killed programs are restarted in
// place. Exposed ports keep working, even those of an agent that is restarted. The process table must show that nothing
// else was started or stopped.
func TestServersAway(t *testing.T) {
	long(t)
	t.Parallel()
	away := 6 * offlineAfter
	if text := os.Getenv("OUTSPAN_AWAY"); text != "" {
		var err error
		if away, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	c := startCluster(t, options{servers: 3, agents: 3})
	port := c.freePort(t)
	jobs := append(c.everyRole(port), job{name: "frail", count: 1, more: apart})
	for _, j := range jobs {
		c.run(t, j)
	}
	restarted := c.agents[2]
	stopWatching := c.watchPrograms()
	line := c.holdLine(t, c.agents[0], port)
	before := c.programs()

	for _, s := range c.servers {
		s.Kill()
	}
	began := time.Now()
	restarted.Kill()
	restarted.start(t)
	waitFor(t, "the exposed port of an agent that was restarted without servers", patience, func() error {
		return serves(restarted, port)
	})
	failed := map[string]bool{}
	victims := c.instancesOf("frail")
	maps.Copy(victims, c.instancesOf("quorum", restarted))
	if len(victims) != 2 {
		t.Fatalf("to be killed are %v, want frail and the member on %s", victims, restarted.Name)
	}
	for id, ps := range victims {
		failed[id] = true
		for _, p := range ps {
			procs.Kill(p.PID)
		}
		waitFor(t, "the restart of "+id+" without servers", patience, func() error {
			if now := c.programs()[id]; len(now) != 1 || slices.Equal(now, before[id]) {
				return fmt.Errorf("it was %v and is %v", before[id], now)
			}
			return nil
		})
	}
	time.Sleep(time.Until(began.Add(away))) // the servers stay away until then
	for _, s := range c.servers {
		s.start(t)
	}
	c.waitVoters(t, 3)
	c.waitHeard(t)
	for _, j := range jobs {
		c.waitReady(t, j.name, j.count)
	}
	if err := line(); err != nil {
		t.Errorf("a connection through an exposed port: %v", err)
	}
	c.judgePrograms(t, before, stopWatching(), failed)
	for _, m := range c.agents {
		waitFor(t, "the exposed port of "+m.Name, patience, func() error { return serves(m, port) })
	}
}

const apart = "    distinct { attribute = \"node.id\" }\n    restart { delay = \"200ms\" }\n"

// everyRole returns five jobs: a service with an exposed port, a quorum, a singleton, a job with a local volume, and a
// job with a replicated volume.
func (c *cluster) everyRole(port int) []job {
	facts := "    role_check {\n      exec     = [\"/bin/echo\", \"{\\\"in_sync\\\":true,\\\"leader\\\":false}\"]\n" +
		"      interval = \"1s\"\n    }\n"
	return []job{
		{name: "web", count: 6, expose: port, more: apart[strings.Index(apart, "\n")+1:]},
		{name: "quorum", count: 3, more: "    role = \"quorum\"\n" + facts + apart},
		{name: "single", count: 1, more: "    role = \"singleton\"\n"},
		{name: "local", count: 1, more: volumeBlock("local", c.path("local"))},
		{name: "copies", count: 2, more: volumeBlock("replicated", c.path("copies")) + facts},
	}
}

// judgePrograms asserts that the processes in before still run, and that seen contains no other processes. For an
// instance in failed, whose program was killed once, seen must contain two processes, and one must run.
func (c *cluster) judgePrograms(t *testing.T, before, seen map[string][]string, failed map[string]bool) {
	t.Helper()
	now := c.programs()
	for id, ps := range seen {
		switch was := before[id]; {
		case failed[id] && (len(ps) != 2 || len(now[id]) != 1):
			t.Errorf("instance %s was killed once: it ran as %v and runs as %v", id, ps, now[id])
		case !failed[id] && (!slices.Equal(ps, was) || !slices.Equal(now[id], was)):
			t.Errorf("instance %s ran as %v before, %v were seen, and it runs as %v", id, was, ps, now[id])
		}
	}
	for id := range before {
		if len(seen[id]) == 0 {
			t.Errorf("instance %s was not seen", id)
		}
	}
}

func volumeBlock(kind, path string) string {
	return fmt.Sprintf("    volume \"data\" {\n      kind = %q\n      path = %q\n    }\n", kind, path)
}

// programs returns the processes that run the demo workload, by instance id. Other processes of an instance, such as
// checks, are not included.
func (c *cluster) programs() map[string][]string {
	found := map[string][]string{}
	for id, ps := range c.instances() {
		for _, p := range ps {
			if strings.Contains(p.Args(), "\x00demo-app") {
				found[id] = append(found[id], p.String())
			}
		}
		slices.Sort(found[id])
	}
	return found
}

// watchPrograms calls programs every 100 ms until stop is called. stop returns all processes that were found, by
// instance id.
func (c *cluster) watchPrograms() (stop func() map[string][]string) {
	seen, done := map[string][]string{}, make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			for id, ps := range c.programs() {
				for _, p := range ps {
					if !slices.Contains(seen[id], p) {
						seen[id] = append(seen[id], p)
					}
				}
			}
			select {
			case <-done:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	})
	return func() map[string][]string {
		close(done)
		wg.Wait()
		for _, ps := range seen {
			slices.Sort(ps)
		}
		return seen
	}
}

// holdLine connects to the exposed port on the agent m. It sends requests on this connection, with pauses of 100 ms,
// until one fails or end is called. end returns the error of the failed request, if any.
func (c *cluster) holdLine(t *testing.T, m *member, port int) (end func() error) {
	t.Helper()
	conn, err := net.Dial("tcp", net.JoinHostPort(m.address, fmt.Sprint(port)))
	if err != nil {
		t.Fatal(err)
	}
	done, result := make(chan struct{}), make(chan error, 1)
	go func() {
		defer conn.Close()
		r := bufio.NewReader(conn)
		for asked := 0; ; asked++ {
			select {
			case <-done:
				result <- nil
				return
			case <-time.After(100 * time.Millisecond):
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			if err := askOn(conn, r); err != nil {
				result <- fmt.Errorf("after %d requests: %w", asked, err)
				return
			}
		}
	}()
	return func() error {
		close(done)
		return <-result
	}
}

func askOn(conn io.Writer, r *bufio.Reader) error {
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: web\r\n\r\n"); err != nil {
		return err
	}
	answer, err := http.ReadResponse(r, nil)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// serves returns an error unless the service answers on a new connection to the exposed port on the agent m.
func serves(m *member, port int) error {
	client := http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + net.JoinHostPort(m.address, fmt.Sprint(port)) + "/")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if text, _ := io.ReadAll(answer.Body); !strings.HasPrefix(string(text), "instance ") {
		return errors.New("answered: " + string(text))
	}
	return nil
}
