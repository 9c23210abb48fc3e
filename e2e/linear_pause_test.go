package e2e

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/e2e/linear"
)

// pause stops a process with SIGSTOP, and waits until the kernel shows it as stopped.
func (m *member) pause(t testing.TB) {
	t.Helper()
	_ = m.Signal(syscall.SIGSTOP)
	waitFor(t, m.Name+" stands still", patience, func() error {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.PID()))
		if err != nil {
			return err
		}
		if fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:])); fields[0] != "T" {
			return fmt.Errorf("its state is %s", fields[0])
		}
		return nil
	})
}

func (m *member) unpause(t testing.TB) {
	t.Helper()
	_ = m.Signal(syscall.SIGCONT)
}

// heartbeatsUnderWay is how long the followers are stopped before the leader is stopped. In this time the leader sends
// each follower a heartbeat, as it does every 100 to 200 ms. The time is shorter than the leader's lease.
const heartbeatsUnderWay = 250 * time.Millisecond

// busyReads is the number of connections that keep the leader busy until it is paused. A leader that has much work runs
// its timers later when it continues.
const busyReads = 64

// manyThreads is the GOMAXPROCS of each server. More threads make the order of a server's work more random on few
// cores.
const manyThreads = "32"

// pendingReads is the number of reads that wait in the sockets of the paused leader when it continues.
const pendingReads = 64

// TestPausedLeader reads from a leader that was paused while another leader was elected and acknowledged a newer value.
// Every answer to a consistent read must have the newer value. When the old leader continues, its sockets contain the
// followers' answers to its last heartbeats, so it may believe that it still leads.
//
// The test proves this for this build on real processes. It does not reliably detect a server that uses VerifyLeader in
// place of a Barrier, because the order of a server's work depends on the scheduler. TestStandstill of package cluster
// detects such a server, in fake time.
func TestPausedLeader(t *testing.T) {
	long(t)
	t.Setenv("GOMAXPROCS", manyThreads) // for the servers, which inherit the environment
	cycles := 5
	if text := os.Getenv("OUTSPAN_LINEAR_CYCLES"); text != "" {
		var err error
		if cycles, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	c := newCluster(t, options{servers: 3})
	for _, m := range c.servers {
		settings := m.settings()
		settings["limits"] = "requests_per_second = 1000000"
		m.configure(t, settings)
		m.start(t)
	}
	c.waitVoters(t, 3)
	p := &pausing{c: c, history: linear.NewHistory(), began: time.Now(), key: linear.Key{Kind: linear.Job, Name: "paused"}}
	p.write(t, c.leader(t))
	done := 0
	for range cycles {
		if p.cycle(t); p.caught > 0 {
			break
		}
		done++
	}
	judgeHistory(t, p.history)
	t.Logf("%d cycles: %d reads were answered by the paused server as the leader, %d by others for it, %d not at all; "+
		"an older value in %d cycles", done+p.caught, p.own, p.forwarded, p.refused, p.caught)

}

// pausing is the state of TestPausedLeader. Only the test's goroutine changes it.
type pausing struct {
	c       *cluster
	history *linear.History
	began   time.Time
	key     linear.Key
	value   int
	index   uint64 // index of the last write

	own, forwarded, refused, caught int
}

func (p *pausing) now() time.Duration { return time.Since(p.began) }

// write writes the next value through a server, and repeats the request until it is acknowledged.
func (p *pausing) write(t *testing.T, s *member) {
	t.Helper()
	p.value++
	value := fmt.Sprint("v", p.value)
	o := linear.Op{Begin: p.now(), Ask: linear.Ask{Key: p.key, Action: linear.Write, Value: value, Door: s.Name}}
	body := fmt.Sprintf(
		`{"job":{"name":"paused","groups":[{"name":"none","count":0,"exec":{"command":"/bin/true"},"env":{"V":%q}}]}}`, value)
	waitFor(t, "an acknowledged write", patience, func() error {
		a, err := s.request(http.MethodPost, "/v1/jobs?request_id="+value, strings.NewReader(body),
			http.Header{"Content-Type": {"application/json"}})
		if err != nil {
			return err
		}
		var reply struct{ Index uint64 }
		if err := json.Unmarshal(a.body, &reply); err != nil || a.status != http.StatusOK {
			return fmt.Errorf("%d %s (%w)", a.status, a.body, err)
		}
		o.Answer = linear.Answer{Outcome: linear.Done, Index: reply.Index}
		return nil
	})
	o.End = p.now()
	p.index = o.Index
	p.history.Add(o)
}

// cycle stops the followers for a moment, so that heartbeats of the leader wait in their sockets, and then stops the
// leader. The followers continue, answer these heartbeats and elect another leader, which acknowledges a newer value.
// Then cycle sends reads to the old leader and lets it continue.
func (p *pausing) cycle(t *testing.T) {
	t.Helper()
	c := p.c
	c.waitVoters(t, len(c.servers))
	old := c.leader(t)
	others := without(c.servers, old)
	readers := p.connect(t, old)
	defer p.occupy(t, old)()
	for _, s := range others {
		s.pause(t)
	}
	time.Sleep(heartbeatsUnderWay) // only the leader itself knows when it has sent the heartbeats
	old.pause(t)
	for _, s := range others {
		s.unpause(t)
	}
	var next *member
	waitFor(t, "another leader", patience, func() error {
		for _, s := range others {
			if s.get("/readyz?leader=1", nil) == nil {
				next = s
				return nil
			}
		}
		return errors.New("there is none")
	})
	p.write(t, next)
	for _, r := range readers {
		r.ask(t, p.now())
	}
	old.unpause(t)
	p.collect(t, readers, old)
}

// occupy keeps a server busy with stale reads until the returned function is called.
func (p *pausing) occupy(t testing.TB, s *member) (end func()) {
	t.Helper()
	var wg sync.WaitGroup
	var conns []net.Conn
	for range busyReads {
		conn, err := net.Dial("unix", s.socket())
		if err != nil {
			t.Fatal(err)
		}
		conns = append(conns, conn)
		wg.Go(func() {
			answers := bufio.NewReader(conn)
			for {
				if _, err := io.WriteString(conn,
					"GET /v1/jobs/paused?consistency=stale HTTP/1.1\r\nHost: outspan\r\n\r\n"); err != nil {
					return
				}
				resp, err := http.ReadResponse(answers, nil)
				if err != nil {
					return
				}
				_, err = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
				if err != nil {
					return
				}
			}
		})
	}
	return func() {
		for _, conn := range conns {
			_ = conn.Close()
		}
		wg.Wait()
	}
}

// reader is a connection to the old leader's socket that is opened before the pause.
type reader struct {
	conn   net.Conn
	client int
	begin  time.Duration
}

func (p *pausing) connect(t *testing.T, s *member) []*reader {
	t.Helper()
	var all []*reader
	for i := range pendingReads {
		conn, err := net.Dial("unix", s.socket())
		if err != nil {
			t.Fatal(err)
		}
		r := &reader{conn: conn, client: i + 1}
		all = append(all, r)
		r.ask(t, p.now()) // after an answer, the server has accepted the connection and waits for the next request
		if _, err := r.answer(p.key); err != nil {
			t.Fatalf("a read before the pause: %v", err)
		}
	}
	return all
}

// ask writes a request. If the server is paused, the kernel keeps the request in the socket.
func (r *reader) ask(t *testing.T, now time.Duration) {
	t.Helper()
	r.begin = now
	_ = r.conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(r.conn,
		"GET /v1/jobs/paused?consistency=consistent HTTP/1.1\r\nHost: outspan\r\n\r\n"); err != nil {
		t.Errorf("ask the paused server: %v", err)
	}
}

// answer reads an answer and returns it as an operation without times. A refusal has no index.
func (r *reader) answer(key linear.Key) (linear.Op, error) {
	o := linear.Op{Client: r.client, Ask: linear.Ask{Key: key, Action: linear.Read, Level: linear.Consistent}}
	resp, err := http.ReadResponse(bufio.NewReader(r.conn), nil)
	if err != nil {
		return o, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return o, err
	}
	o.Text = resp.Header.Get("Outspan-Leader")
	var job struct {
		Index, Version uint64
		Spec           struct {
			Groups []struct{ Env map[string]string }
		}
	}
	if resp.StatusCode != http.StatusOK {
		o.Answer = linear.Answer{Outcome: linear.Nothing, Text: fmt.Sprintf("%d %s", resp.StatusCode, text)}
		return o, nil
	}
	if err := json.Unmarshal(text, &job); err != nil {
		return o, err
	}
	o.Answer = linear.Answer{Outcome: linear.Done, At: job.Index, Version: job.Version, Text: o.Text}
	o.Index, _ = strconv.ParseUint(resp.Header.Get("Outspan-Index"), 10, 64)
	if len(job.Spec.Groups) == 1 {
		o.Answer.Value = job.Spec.Groups[0].Env["V"]
	}
	return o, nil
}

// readFor is how long each connection repeats its read after the old leader continues. It is as long as a leader's
// lease, after which the old leader must know that it does not lead any more.
const readFor = 500 * time.Millisecond

// collect reads the answers, repeats the reads for the time readFor, and adds all reads to the history.
func (p *pausing) collect(t *testing.T, readers []*reader, old *member) {
	t.Helper()
	until := time.Now().Add(readFor)
	answers := make([][]linear.Op, len(readers))
	var wg sync.WaitGroup
	for i, r := range readers {
		wg.Go(func() {
			defer r.conn.Close()
			for {
				o, err := r.answer(p.key)
				if err != nil {
					o.Outcome, o.Text = linear.Nothing, err.Error()
				}
				o.Begin, o.End, o.Door = r.begin, p.now(), old.Name
				answers[i] = append(answers[i], o)
				if err != nil || time.Now().After(until) {
					return
				}
				r.ask(t, p.now())
			}
		})
	}
	wg.Wait()
	caught := false
	for _, all := range answers {
		for _, o := range all {
			p.history.Add(o)
			switch {
			case o.Outcome != linear.Done:
				p.refused++
			case o.Text == old.Name:
				p.own++
			default:
				p.forwarded++
			}
			caught = caught || o.Outcome == linear.Done && o.Index < p.index
		}
	}
	if caught {
		p.caught++
	}
}
