package agent

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/agent/door"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

func TestForwardPrefersLocal(t *testing.T) {
	d, c := newGate(t), caller(t, false)
	near, far := newHouse(t, "near", "here", nil), newHouse(t, "far", "there", nil)
	d.serve(near.Backend, far.Backend)
	for range 20 {
		if got, err := get(c, d.address()); got != "near" {
			t.Fatalf("%q %v", got, err)
		}
	}
	d.serve(far.Backend)
	if got, err := get(c, d.address()); got != "far" {
		t.Fatalf("%q %v", got, err)
	}
}

func TestForwardLeastConnections(t *testing.T) {
	d, c := newGate(t), caller(t, false)
	var open sync.WaitGroup
	release := make(chan struct{})
	wait := func(http.ResponseWriter, *http.Request) { <-release }
	a, b, e := newHouse(t, "a", "x", wait), newHouse(t, "b", "y", wait), newHouse(t, "c", "z", wait)
	d.serve(a.Backend, b.Backend, e.Backend)
	for n := range 12 {
		open.Go(func() { _, _ = get(c, d.address()) })
		eventually(t, "the request to arrive", func() bool { return a.hits.Load()+b.hits.Load()+e.hits.Load() == int64(n+1) })
	}
	if a.hits.Load() != 4 || b.hits.Load() != 4 || e.hits.Load() != 4 {
		t.Errorf("%d %d %d", a.hits.Load(), b.hits.Load(), e.hits.Load())
	}
	close(release)
	open.Wait()
}

// If a backend can't be reached, the connection is forwarded to another backend, and the unreachable backend is not
// tried for a while.
// proves P18
func TestForwardRetries(t *testing.T) {
	d, c := newGate(t), caller(t, false)
	gone := model.Backend{Instance: "gone", Node: "here", Address: hostPort("127.0.0.1", freePort(t, "127.0.0.1"))}
	good := newHouse(t, "good", "there", nil)
	d.serve(gone, good.Backend)
	for range 20 {
		if got, err := get(c, d.address()); got != "good" {
			t.Fatalf("%q %v", got, err)
		}
	}
	if st := d.status(); st.Down != 1 || st.Refused != 0 {
		t.Errorf("%+v", st)
	}
	// After a while, the backend is tried again.
	l, err := net.Listen("tcp", gone.Address)
	must(t, err)
	defer l.Close()
	d.serve(gone)
	conn, err := net.Dial("tcp", d.address())
	must(t, err)
	defer conn.Close()
	back, err := l.Accept()
	must(t, err)
	back.Close()
}

// A connection that arrives while the service has no backend waits for a backend.
func TestForwardWaitsForABackend(t *testing.T) {
	d, c := newGate(t), caller(t, false)
	d.serve()
	answer := make(chan string, 1)
	go func() {
		got, err := get(c, d.address())
		for err != nil && t.Context().Err() == nil { // on a busy machine, a request may be refused before a backend exists
			got, err = get(c, d.address())
		}
		answer <- got
	}()
	eventually(t, "the connection", func() bool { return d.count() > 0 })
	good := newHouse(t, "good", "there", nil)
	d.serve(good.Backend)
	if got := <-answer; got != "good" {
		t.Errorf("%q", got)
	}
}

func TestForwardRefusesInTheEnd(t *testing.T) {
	d, c := newGate(t), caller(t, false)
	d.serve()
	if got, err := get(c, d.address()); err == nil {
		t.Errorf("%q", got)
	}
	eventually(t, "the count", func() bool { return d.status().Refused == 1 })
}

// No request fails while a backend drains: the backend leaves the service, answers the requests that it has accepted,
// and stops after the drain delay.
func TestForwardLosesNothingInADrain(t *testing.T) {
	d := newGate(t)
	slow := func(http.ResponseWriter, *http.Request) { time.Sleep(20 * time.Millisecond) }
	old, successor := newHouse(t, "old", "here", slow), newHouse(t, "new", "there", slow)
	d.serve(old.Backend)
	ctx, cancel := context.WithCancel(t.Context())
	var failed, done atomic.Int64
	var probers sync.WaitGroup
	for n := range 8 {
		c := caller(t, n%2 == 0)
		probers.Go(func() {
			for ctx.Err() == nil {
				if _, err := get(c, d.address()); err != nil {
					failed.Add(1)
					t.Errorf("request: %v", err)
				}
				done.Add(1)
				time.Sleep(5 * time.Millisecond)
			}
		})
	}
	eventually(t, "some requests", func() bool { return done.Load() > 100 })
	d.serve(old.Backend, successor.Backend)
	d.serve(successor.Backend)         // draining
	time.Sleep(200 * time.Millisecond) // the drain delay
	end, stop := context.WithTimeout(t.Context(), 5*time.Second)
	defer stop()
	must(t, old.srv.Shutdown(end))
	before := done.Load()
	eventually(t, "more requests", func() bool { return done.Load() > before+100 })
	cancel()
	probers.Wait()
	if failed.Load() != 0 || successor.hits.Load() == 0 {
		t.Errorf("%d of %d failed, %d at the new one", failed.Load(), done.Load(), successor.hits.Load())
	}
}

// A client that has closed its half of a connection still receives everything that the backend sends afterwards.
func TestForwardHalfClose(t *testing.T) {
	d := newGate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	d.serve(model.Backend{Instance: "echo", Node: "here", Address: l.Addr().String()})
	conn, err := net.Dial("tcp", d.address())
	must(t, err)
	defer conn.Close()
	back, err := l.Accept()
	must(t, err)
	defer back.Close()
	payload := strings.Repeat("x", 1<<20)
	go func() {
		_, _ = io.WriteString(conn, payload)
		_ = conn.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(back) // returns when the client has closed its half
	if err != nil || string(got) != payload {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	go func() {
		_, _ = io.WriteString(back, payload)
		back.Close()
	}()
	got, err = io.ReadAll(conn)
	if err != nil || string(got) != payload {
		t.Errorf("%d bytes back, %v", len(got), err)
	}
	conn.Close()
	eventually(t, "the connection to be gone", func() bool { return d.count() == 0 })
}

// A client that reads slowly gets every byte and the end of the stream, even if the backend has closed its connection
// long before. After that, the client's connection is closed, although the client has not closed its half.
func TestForwardSlowReader(t *testing.T) {
	d := newGate(t)
	const wait = 200 * time.Millisecond
	d.limit = func(l *door.Limits) { l.HalfClosed = wait }
	d.start(d.poll)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	d.serve(model.Backend{Instance: "sender", Node: "here", Address: l.Addr().String()})
	conn, err := net.Dial("tcp", d.address())
	must(t, err)
	defer conn.Close()
	must(t, conn.(*net.TCPConn).SetReadBuffer(16<<10))
	back, err := l.Accept()
	must(t, err)
	const size = 1 << 20
	sent := make(chan error, 1)
	go func() {
		_, err := back.Write(make([]byte, size))
		sent <- errors.Join(err, back.Close())
	}()
	time.Sleep(2 * wait) // longer than Limits.HalfClosed; meanwhile the client reads nothing
	got, chunk := 0, make([]byte, 8<<10)
	for pauses := 0; ; {
		n, err := conn.Read(chunk)
		if got += n; errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("after %d of %d bytes: %v", got, size, err)
		}
		if got > pauses*size/10 {
			pauses++
			time.Sleep(wait)
		}
	}
	if err := <-sent; err != nil || got != size {
		t.Errorf("%d bytes of %d, %v", got, size, err)
	}
	eventually(t, "the connection to be gone", func() bool { return d.count() == 0 })
}

// If a backend dies in the middle of an answer, the client must not see a regular end of the stream.
func TestForwardPassesResetsOn(t *testing.T) {
	d := newGate(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	d.serve(model.Backend{Instance: "dies", Node: "here", Address: l.Addr().String()})
	conn, err := net.Dial("tcp", d.address())
	must(t, err)
	defer conn.Close()
	back, err := l.Accept()
	must(t, err)
	_, err = io.WriteString(back, "half an ans")
	must(t, err)
	eventually(t, "the first bytes", func() bool { b := make([]byte, 1); _, err := conn.Read(b); return err == nil })
	must(t, back.(*net.TCPConn).SetLinger(0))
	back.Close()
	if rest, err := io.ReadAll(conn); err == nil {
		t.Errorf("a clean end after %q", rest)
	}
}

// If another process listens on an exposed port, the forwarder reports a problem and keeps trying to listen there.
func TestForwardTakesThePortWhenItIsFree(t *testing.T) {
	d, c := newGate(t), caller(t, false)
	l, err := net.Listen("tcp", d.address())
	must(t, err)
	defer l.Close()
	good := newHouse(t, "good", "there", nil)
	d.serve(good.Backend)
	problem := func() string { p, _ := d.problems.Load("service web"); s, _ := p.(string); return s }
	eventually(t, "the problem", func() bool { return strings.Contains(problem(), "another process holds") })
	l.Close()
	eventually(t, "an answer", func() bool { got, _ := get(c, d.address()); return got == "good" })
	eventually(t, "the problem to be over", func() bool { return problem() == "" })
}

// The forwarder moves its listener when the service gets another port, and closes it when the service is gone.
func TestForwardFollows(t *testing.T) {
	d, c := newGate(t), caller(t, false)
	good := newHouse(t, "good", "there", nil)
	d.serve(good.Backend)
	eventually(t, "the first port", func() bool { got, _ := get(c, d.address()); return got == "good" })
	first := d.address()
	if got := d.f.exposed(); len(got) != 1 || got["web"] != d.port {
		t.Errorf("exposed %v", got)
	}
	d.port = freePort(t, "127.0.0.1")
	d.serve(good.Backend)
	eventually(t, "the second port", func() bool { got, _ := get(c, d.address()); return got == "good" })
	eventually(t, "the first port to be closed", func() bool { _, err := get(c, first); return err != nil })
	d.put()
	eventually(t, "the second port to be closed", func() bool { _, err := get(c, d.address()); return err != nil })
	if got := d.f.exposed(); len(got) != 0 {
		t.Errorf("exposed %v", got)
	}
}

// Services with an older index than the forwarder has seen are ignored at first, because a lagging server may have sent
// them. After three such answers in a row, as after a restore, the next one is accepted.
func TestForwardOlderSets(t *testing.T) {
	d := newGate(t)
	d.mu.Lock()
	d.now.Index = 100
	d.mu.Unlock()
	good := newHouse(t, "good", "there", nil)
	d.serve(good.Backend)
	d.mu.Lock()
	d.now.Index = 50 // as after a restore from a snapshot
	d.mu.Unlock()
	d.put(transport.ServiceBackends{Name: "web", Expose: d.port})
	if st := d.status(); st.Backends != 1 {
		t.Errorf("it was believed at once: %+v", st)
	}
	eventually(t, "the older set to be believed in the end", func() bool { return d.status().Backends == 0 })
}

// A restored state may lack services and backends that exist. Until the restore is confirmed, the agent keeps the ports
// of such services open and forwards to such backends, also after a restart of the agent.
func TestForwardBehindARestore(t *testing.T) {
	d, c := newGate(t), caller(t, false)
	good := newHouse(t, "good", "there", nil)
	answers := func(name string) bool { got, _ := get(c, d.address()); return got == name }
	d.serve(good.Backend)
	eventually(t, "an answer", func() bool { return answers("good") })
	restored := func(unconfirmed bool, services ...transport.ServiceBackends) {
		d.mu.Lock()
		d.now.Unconfirmed = unconfirmed
		d.mu.Unlock()
		d.put(services...)
		eventually(t, "the forwarder to follow", func() bool {
			d.f.mu.Lock()
			defer d.f.mu.Unlock()
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.f.seen == seenOf(d.now)
		})
	}
	restored(true)
	if !answers("good") {
		t.Error("the port of a service that the restored state lacks is closed before the restore is confirmed")
	}
	d.start(d.poll)
	eventually(t, "an answer after a restart", func() bool { return answers("good") })
	restored(true, transport.ServiceBackends{Name: "web", Expose: d.port})
	if !answers("good") {
		t.Error("a backend that the restored state lacks gets nothing before the restore is confirmed")
	}
	restored(false)
	eventually(t, "the port to be closed", func() bool { _, err := get(c, d.address()); return err != nil })
}

// An agent that restarts while no server answers opens its ports and forwards to the last known backends. A later
// answer of a server replaces these backends.
func TestForwardWithoutServers(t *testing.T) {
	d, c := newGate(t), caller(t, false)
	old, good := newHouse(t, "old", "there", nil), newHouse(t, "good", "there", nil)
	d.serve(old.Backend)
	eventually(t, "an answer", func() bool { got, _ := get(c, d.address()); return got == "old" })
	servers := make(chan struct{})
	d.start(func(ctx context.Context, r transport.ServicesRequest) (transport.Services, error) {
		select {
		case <-servers:
			return d.poll(ctx, r)
		default:
			return transport.Services{}, errors.New("no server answers")
		}
	})
	if got := d.f.exposed()["web"]; got != d.port {
		t.Errorf("before any answer instances are told port %d, want %d", got, d.port)
	}
	eventually(t, "an answer without servers", func() bool { got, _ := get(c, d.address()); return got == "old" })
	close(servers)
	d.serve(good.Backend)
	eventually(t, "the servers to be believed", func() bool { got, _ := get(c, d.address()); return got == "good" })
	d.put()
	eventually(t, "the port to be closed", func() bool { return len(d.f.status()) == 0 })
	d.start(d.poll)
	must(t, os.WriteFile(d.file, []byte("not what was written"), 0o600))
	d.start(d.poll)
	if got := d.f.exposed(); len(got) != 0 {
		t.Errorf("a file that can't be read exposes %v", got)
	}
}
