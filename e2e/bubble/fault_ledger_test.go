package bubble

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// ledger writes labels through random servers and knows what it was told of each, so that it can tell whether a write was lost or came twice
// (S4). Each writer has a label of its own and counts in it. Safe for many goroutines.
type ledger struct {
	w       *world
	clients []*transport.Client // one for each server
	nodes   []*node
	ending  chan struct{}
	wg      sync.WaitGroup

	mu     sync.Mutex
	writes []*labelling
}

// labelling is one write.
type labelling struct {
	id     fsm.RequestID
	node   fsm.NodeID
	writer int
	value  int
	known  knowledge
}

// knowledge is what a client knows of its write.
type knowledge int

const (
	unknown knowledge = iota // no answer, or one that leaves it open
	done
	refused
)

func (l *labelling) String() string {
	return fmt.Sprintf("write %d of writer %d (request %s)", l.value, l.writer, l.id)
}

// keep starts some writers; each writes about four times a second until stop.
func (w *world) keep(writers int, random *rand.Rand) *ledger {
	l := &ledger{w: w, nodes: w.nodes, ending: make(chan struct{})}
	for _, s := range w.servers {
		l.clients = append(l.clients, w.clientOf(s))
		s.ledger.Store(l)
	}
	for i := range writers {
		own := rand.New(rand.NewPCG(random.Uint64(), uint64(i)))
		l.wg.Go(func() { l.write(i, own) })
	}
	return l
}

// clientOf is a client of one server alone, which tries nothing again.
func (w *world) clientOf(s *server) *transport.Client {
	w.t.Helper()
	creds, err := w.ca.Credentials(transport.RoleCLI, "test")
	must(w.t, err)
	c, err := transport.NewClient(transport.ClientConfig{Addresses: []string{"https://" + s.address()}, Credentials: creds, Dial: w.dialer(cliHost), RetryFor: -1})
	must(w.t, err)
	return c
}

func (l *ledger) write(writer int, random *rand.Rand) {
	n := l.nodes[writer%len(l.nodes)]
	for value := 1; ; value++ {
		one := &labelling{id: fsm.RequestID(ulid.Make().String()), node: n.id, writer: writer, value: value}
		l.mu.Lock()
		l.writes = append(l.writes, one)
		l.mu.Unlock()
		known := l.try(one, random)
		l.mu.Lock()
		one.known = known
		l.mu.Unlock()
		select {
		case <-l.ending:
			return
		case <-time.After(time.Duration(random.IntN(500)) * time.Millisecond):
		}
	}
}

// try sends a write with the same id to one server after the other until one knows what became of it.
func (l *ledger) try(one *labelling, random *rand.Rand) knowledge {
	path := "/v1/nodes/" + string(one.node) + "/label"
	body := map[string]any{"labels": map[string]string{label(one.writer): fmt.Sprint(one.value)}}
	for {
		c := l.clients[random.IntN(len(l.clients))]
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(500+random.IntN(2500))*time.Millisecond)
		_, _, err := c.Do(ctx, http.MethodPost, path, url.Values{"request_id": {string(one.id)}}, body)
		cancel()
		if err == nil {
			return done
		}
		if settles(err) {
			return refused
		}
		select {
		case <-l.ending:
			return unknown
		case <-time.After(time.Duration(50+random.IntN(200)) * time.Millisecond):
		}
	}
}

// settles reports whether an error tells for good that a write did not happen, and never will under its id.
func settles(err error) bool {
	var e *fsm.Error
	if !errors.As(err, &e) {
		return false
	}
	switch e.Code {
	case transport.CodeUnreachable, fsm.CodeUnknownOutcome, fsm.CodeNoLeader, fsm.CodeBusy, fsm.CodeTimeout, fsm.CodeDiskFull:
		return false
	}
	return true
}

func label(writer int) string { return fmt.Sprintf("writer-%d", writer) }

// leads looks at the state with which a server begins to lead: everything that was acknowledged before must be in it.
// acknowledged was made before the state was read.
func (l *ledger) leads(name string, term uint64, acknowledged []*labelling, state fsm.State) {
	for _, one := range acknowledged {
		if !state.Requests.Has(one.id) {
			l.w.t.Errorf("S4: %s was acknowledged, and %s leads in term %d without it", one, name, term)
		}
	}
}

// acknowledged lists the writes that are known to be done.
func (l *ledger) acknowledged() (out []*labelling) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.writes {
		if one.known == done {
			out = append(out, one)
		}
	}
	return out
}

// stop ends the writers and judges all that they wrote: what was acknowledged happened once, what was refused never, the rest at most once.
func (l *ledger) stop() {
	t := l.w.t
	t.Helper()
	close(l.ending)
	l.wg.Wait()
	for _, c := range l.clients {
		c.Close()
	}
	times := map[fsm.RequestID]int{}
	for _, e := range l.w.history.find(func(c committed) bool { return c.Request != "" }) {
		if r := e.results[0]; r.Refusal == nil && !r.Replay {
			times[e.Request]++
		}
	}
	state, count, last := l.w.state(), map[knowledge]int{}, map[int]*labelling{}
	for _, one := range l.writes {
		count[one.known]++
		switch n := times[one.id]; {
		case n > 1:
			t.Errorf("S4: %s is in the log %d times", one, n)
		case n == 0 && one.known == done:
			t.Errorf("S4: %s was acknowledged, and never happened", one)
		case n == 1 && one.known == refused:
			t.Errorf("S4: %s was refused, and happened", one)
		}
		if one.known == done {
			last[one.writer] = one
		}
	}
	for writer, one := range last {
		if n, ok := state.Nodes.Get(one.node); !ok || !atLeast(n.Shape.Labels[label(writer)], one.value) {
			t.Errorf("S4: %s was the last one acknowledged, its label is %q", one, n.Shape.Labels[label(writer)])
		}
	}
	t.Logf("%d writes done, %d unknown, %d refused", count[done], count[unknown], count[refused])
	if count[done] == 0 {
		t.Error("no write was acknowledged")
	}
}

func atLeast(text string, value int) bool {
	var got int
	_, err := fmt.Sscan(text, &got)
	return err == nil && got >= value
}
