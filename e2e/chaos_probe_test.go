package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// dialIn connects from inside a network namespace.
func dialIn(ctx context.Context, space, network, address string) (conn net.Conn, err error) {
	err = inSpace(space, func() error {
		conn, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// listenIn listens on a TCP address of a network namespace.
func listenIn(space, address string) (ln net.Listener, err error) {
	err = inSpace(space, func() error {
		ln, err = net.Listen("tcp", address)
		return err
	})
	return ln, err
}

// inSpace calls f in a network namespace.
func inSpace(space string, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread in the namespace ends with this goroutine
		fd, err := unix.Open(space, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		if err != nil {
			result <- fmt.Errorf("enter %s: %w", space, err)
			return
		}
		result <- f()
	}()
	return <-result
}

// chaosProbe sends requests to the exposed services as a user would, through the ports of each agent in turn. It also
// counts changes of the leader.
type chaosProbe struct {
	x      *chaos
	client *http.Client
	quit   chan struct{}
	done   sync.WaitGroup

	mu     sync.Mutex
	sent   int
	errors []lostProbe
	stalls []stall
}

const (
	probeEvery = 50 * time.Millisecond
	// A probe that is late by more than this shows a stall. Two such stalls use up a drain_delay of 1 s.
	probeStall = 500 * time.Millisecond
)

// stall is a time during which the test machine seems to have run no process.
type stall struct{ from, to time.Time }

// lostProbe is a failed request, with the times of its beginning and end.
type lostProbe struct {
	at, end time.Time
	text    string
}

func (l lostProbe) String() string {
	return l.at.Format("15:04:05.000 to ") + l.end.Format("05.000 ") + l.text
}

// duringStall reports whether the test machine stood still during a request or in the second before it. If so, the
// drain_delay of an instance may have passed before agents could stop sending requests to that instance.
func (p *chaosProbe) duringStall(l lostProbe) bool {
	return slices.ContainsFunc(p.stalls, func(s stall) bool {
		return s.from.Before(l.end) && s.to.After(l.at.Add(-time.Second))
	})
}

func probeService(x *chaos) *chaosProbe {
	p := &chaosProbe{x: x, quit: make(chan struct{})}
	p.client = &http.Client{Timeout: 10 * time.Second,
		Transport: &http.Transport{DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
				return dialIn(ctx, x.guest, network, address)
			}}}
	p.done.Go(func() {
		var each sync.WaitGroup
		defer each.Wait()
		for n := 0; ; n++ {
			before := time.Now()
			select {
			case <-p.quit:
				return
			case <-time.After(probeEvery):
			}
			p.woke(before)
			ports := x.ports()
			at, port := x.c.agents[n/len(ports)%len(x.c.agents)], ports[n%len(ports)]
			each.Go(func() { _ = p.ask(at, port) })
		}
	})
	p.done.Go(p.watchLeader)
	return p
}

// woke records a stall if a sleep that began at the given time took much longer than probeEvery.
func (p *chaosProbe) woke(asleep time.Time) {
	if now := time.Now(); now.Sub(asleep) > probeEvery+probeStall {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.stalls = append(p.stalls, stall{asleep, now})
	}
}

func (p *chaosProbe) stop() {
	close(p.quit)
	p.done.Wait()
	p.x.book.count("probes", p.sent)
	p.x.book.count("probes failed", len(p.errors))
	p.x.book.count("times that this machine stood still for half a second", len(p.stalls))
}

// ask sends one request to an exposed port of an agent, and records a failure.
func (p *chaosProbe) ask(at *member, port int) error {
	began := time.Now()
	err := fetch(p.client, "http://"+net.JoinHostPort(at.address, strconv.Itoa(port))+"/")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sent++
	if err != nil {
		p.errors = append(p.errors, lostProbe{began, time.Now(), fmt.Sprintf("%s:%d %v", at.Name, port, err)})
	}
	return err
}

// judge checks the requests that began in a window. If the window's faults touch only servers, no request may fail,
// unless the test machine stood still.
func (p *chaosProbe) judge(w *window) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost := slices.DeleteFunc(slices.Clone(p.errors), func(l lostProbe) bool { return l.at.Before(w.began) })
	if len(lost) == 0 {
		return
	}
	p.x.book.say("%d: %d probes failed: %v", w.number, len(lost), lost[max(0, len(lost)-3):])
	p.x.book.count("windows with failed probes", 1)
	if lost = slices.DeleteFunc(lost, p.duringStall); len(lost) == 0 {
		p.x.book.say("%d: the machine stood still meanwhile: not judged", w.number)
		return
	}
	if w.onlyServers() {
		p.x.book.violate("P14: %d requests failed in window %d (%s), which hurts servers only: %v", len(lost), w.number,
			w.name, lost[:min(5, len(lost))])
	}
}

// watchLeader counts how often the leader changes.
func (p *chaosProbe) watchLeader() {
	led := ""
	for {
		select {
		case <-p.quit:
			return
		case <-time.After(300 * time.Millisecond):
		}
		for _, s := range p.x.c.servers {
			if a, err := s.ask(http.MethodGet, "/readyz?leader=1", "", time.Second); err == nil &&
				a.status == http.StatusOK && s.Name != led {
				if led != "" {
					p.x.book.count("failovers", 1)
				}
				led = s.Name
				break
			}
		}
	}
}
