package door

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// TestMain runs a door if the test binary is started with the hidden subcommand door, as the real binary does.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "door" {
		os.Exit(Main(os.Args[2:]))
	}
	goleak.VerifyTestMain(m)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

// rig is the directory of a door, an exposed port, and a backend that sends back what it receives.
type rig struct {
	t     *testing.T
	dir   string
	order Order
	at    string
	ended []*Client
}

func newRig(t *testing.T) *rig {
	t.Helper()
	back, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	var open sync.WaitGroup
	open.Go(func() {
		for {
			conn, err := back.Accept()
			if err != nil {
				return
			}
			open.Go(func() { _, _ = io.Copy(conn, conn); conn.Close() })
		}
	})
	free, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	port := free.Addr().(*net.TCPAddr).Port
	must(t, free.Close())
	// The path is longer than the 108 bytes that fit into the address of a unix socket.
	r := &rig{t: t, dir: filepath.Join(t.TempDir(), strings.Repeat("deep", 30), "door"),
		at: net.JoinHostPort("127.0.0.1", strconv.Itoa(port))}
	r.order = Order{Node: "here", Address: "127.0.0.1", Services: []transport.ServiceBackends{
		{Name: "web", Expose: port, Generation: 1,
			Backends: []model.Backend{{Instance: "echo", Node: "here", Address: back.Addr().String()}}},
	}}
	t.Cleanup(func() {
		for _, pid := range r.doors() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		eventually(t, "the end of all doors", func() bool { return len(r.doors()) == 0 })
		for _, c := range r.ended {
			eventually(t, "the doors to be reaped", func() bool { c.reap(); return !c.Busy() })
		}
		back.Close()
		open.Wait()
	})
	return r
}

// doors returns the pids of the doors that use the rig's directory.
func (r *rig) doors() (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		cmd, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		if pid, err := strconv.Atoi(e.Name()); err == nil && bytes.Contains(cmd, []byte(r.dir)) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func (r *rig) client(version string) *Client { return NewClient(r.dir, "/proc/self/exe", version) }

// follow sends the order to the door, as an agent does when it starts. It returns the status of the only service.
func (r *rig) follow(c *Client) Status {
	r.t.Helper()
	list, err := c.Follow(r.t.Context(), r.order, true)
	must(r.t, err)
	if len(list) != 1 {
		r.t.Fatalf("services %+v", list)
	}
	return list[0]
}

// end disconnects from the door, as an agent does when it stops.
func (r *rig) end(c *Client) {
	c.Close()
	r.ended = append(r.ended, c)
}

func ask(conn net.Conn) error {
	if _, err := conn.Write([]byte("x")); err != nil {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

func (r *rig) call() error {
	conn, err := net.DialTimeout("tcp", r.at, 10*time.Second)
	if err != nil {
		return err
	}
	defer conn.Close()
	return ask(conn)
}

// load makes requests from four goroutines, each request over a new connection, until stop is called. stop returns the
// number of requests, and an error if any of them failed.
func (r *rig) load() (stop func() (int64, error)) {
	var n, failed atomic.Int64
	var first atomic.Value
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				n.Add(1)
				if err := r.call(); err != nil {
					failed.Add(1)
					first.CompareAndSwap(nil, err.Error())
				}
			}
		})
	}
	return func() (int64, error) {
		cancel()
		all.Wait()
		if failed.Load() > 0 {
			return n.Load(), errors.New(strconv.FormatInt(failed.Load(), 10) + " failed, one with " + first.Load().(string))
		}
		return n.Load(), nil
	}
}

// TestDoorOutlivesAgents: an agent uses the door of the previous agent. An agent of another version replaces that door.
// No request fails and no connection is cut.
func TestDoorOutlivesAgents(t *testing.T) {
	r := newRig(t)
	first := r.client("1")
	r.follow(first)
	eventually(t, "the port", func() bool { return r.call() == nil })
	line, err := net.Dial("tcp", r.at)
	must(t, err)
	defer line.Close()
	must(t, ask(line))
	stop := r.load()
	r.end(first)
	was := r.doors()
	second := r.client("1")
	if st := r.follow(second); st.Accepted == 0 {
		t.Error("the second agent did not find the counts of the door")
	}
	if now := r.doors(); len(was) != 1 || len(now) != 1 || was[0] != now[0] {
		t.Errorf("the door was %v and is %v", was, now)
	}
	r.end(second)
	for _, version := range []string{"2", "3", "4", "5"} {
		next := r.client(version)
		r.follow(next)
		before, answered := r.calls(next), 0
		eventually(t, "requests through the door of version "+version, func() bool {
			answered = r.calls(next)
			return answered > before+20
		})
		r.end(next)
	}
	if n, err := stop(); err != nil {
		t.Errorf("of %d requests %v", n, err)
	}
	eventually(t, "the newest door and the one with a connection to be left", func() bool { return len(r.doors()) == 2 })
	if err := ask(line); err != nil {
		t.Errorf("the connection through the first door: %v", err)
	}
	must(t, line.Close())
	eventually(t, "the first door to end", func() bool { return len(r.doors()) == 1 })
}

func (r *rig) calls(c *Client) int {
	r.t.Helper()
	list, err := c.Follow(r.t.Context(), r.order, false)
	must(r.t, err)
	if len(list) == 0 {
		return 0
	}
	return int(list[0].Accepted)
}

// TestDoorThatFails: a door that was killed or that hangs is replaced.
func TestDoorThatFails(t *testing.T) {
	if testing.Short() {
		t.Skip("skipped: it waits until a door that hangs is given up; run without -short")
	}
	for name, signal := range map[string]syscall.Signal{"killed": syscall.SIGKILL, "hangs": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			c := r.client("1")
			defer r.end(c)
			r.follow(c)
			eventually(t, "the port", func() bool { return r.call() == nil })
			was := r.doors()
			must(t, syscall.Kill(was[0], signal))
			eventually(t, "another door", func() bool {
				_, err := c.Follow(t.Context(), r.order, false)
				now := r.doors()
				return err == nil && len(now) == 1 && now[0] != was[0]
			})
			eventually(t, "the port of the next door", func() bool { return r.call() == nil })
		})
	}
}

// TestDoorEnds: the process of a door exits when it has no ports any more, or when its directory was removed.
func TestDoorEnds(t *testing.T) {
	for name, finish := range map[string]func(*rig, *Client){
		"no ports": func(r *rig, c *Client) {
			r.order = Order{}
			_, err := c.Follow(r.t.Context(), r.order, true)
			must(r.t, err)
		},
		"directory removed": func(r *rig, c *Client) { must(r.t, os.RemoveAll(r.dir)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			c := r.client("1")
			defer r.end(c)
			r.follow(c)
			eventually(t, "the port", func() bool { return r.call() == nil })
			finish(r, c)
			eventually(t, "the port to be closed", func() bool { return r.call() != nil })
			eventually(t, "the end of the door", func() bool {
				if len(r.order.Services) == 0 { // an agent keeps calling Follow, which reaps a door that has exited
					_, err := c.Follow(t.Context(), r.order, false)
					must(t, err)
				}
				c.reap()
				return len(r.doors()) == 0
			})
		})
	}
}

// TestHandOverBroken: if a new door dies in the middle of a hand-over, the old door continues to serve.
func TestHandOverBroken(t *testing.T) {
	r := newRig(t)
	c := r.client("1")
	defer r.end(c)
	r.follow(c)
	eventually(t, "the port", func() bool { return r.call() == nil })
	for range 3 {
		conn, err := dial(r.dir)
		must(t, err)
		must(t, driver.WriteFrame(conn, request{Op: opHandOver}))
		var answer reply
		must(t, driver.ReadFrame(conn, &answer, messageLimit))
		if answer.Listeners != 1 || len(answer.Order.Services) != 1 {
			t.Fatalf("handed over: %+v", answer)
		}
		listeners, err := receive(conn, 1)
		must(t, err)
		for _, l := range listeners {
			l.Close()
		}
		conn.Close()
		for range 20 {
			must(t, r.call())
		}
		eventually(t, "the hand-over to be given up", func() bool {
			_, err := c.Follow(t.Context(), r.order, true)
			return err == nil
		})
	}
}

// TestOrderFlaws: flaw finds each reason why an order can't be carried out.
func TestOrderFlaws(t *testing.T) {
	web := transport.ServiceBackends{Name: "web", Expose: 80}
	for name, o := range map[string]Order{
		"port":    {Address: "127.0.0.1", Services: []transport.ServiceBackends{{Name: "web", Expose: 70000}}},
		"no port": {Address: "127.0.0.1", Services: []transport.ServiceBackends{{Name: "web"}}},
		"twice":   {Address: "127.0.0.1", Services: []transport.ServiceBackends{web, {Name: "web", Expose: 81}}},
		"ports":   {Address: "127.0.0.1", Services: []transport.ServiceBackends{web, {Name: "api", Expose: 80}}},
		"address": {Address: "here", Services: []transport.ServiceBackends{web}},
	} {
		if o.flaw() == "" {
			t.Errorf("%s: %+v is taken", name, o)
		}
	}
	if why := (Order{Address: "127.0.0.1", Services: []transport.ServiceBackends{web}}).flaw(); why != "" {
		t.Error(why)
	}
}

// FuzzRequest: no bytes on the control socket make a door crash or allocate without bound.
func FuzzRequest(f *testing.F) {
	var b bytes.Buffer
	f.Add([]byte{0, 0, 0, 1, 0xa0})
	f.Add(b.Bytes())
	f.Fuzz(func(_ *testing.T, in []byte) {
		var r request
		for in := bytes.NewReader(in); driver.ReadFrame(in, &r, messageLimit) == nil; {
			_ = r.Order.flaw()
		}
	})
}
