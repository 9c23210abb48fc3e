package bubble

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// labellers write labels of nodes through random servers during a test, so that the test notices if a fault loses a
// write (S4). Each writer counts up in its own label. The world's receipts record all outcomes, and are judged at the
// end.
type labellers struct {
	w       *world
	clients []*transport.Client // one for each server
	ending  chan struct{}
	wg      sync.WaitGroup

	mu   sync.Mutex
	last map[int]int // the last acknowledged value of each writer
}

// keep starts the given number of writers. Each of them writes about four times a second until stop is called.
func (w *world) keep(many int, random *rand.Rand) *labellers {
	l := &labellers{w: w, ending: make(chan struct{}), last: map[int]int{}}
	for _, s := range w.servers {
		l.clients = append(l.clients, w.clientOf(s, "test"))
	}
	for i := range many {
		own := rand.New(rand.NewPCG(random.Uint64(), uint64(i)))
		l.wg.Go(func() { l.write(i, own) })
	}
	return l
}

// clientOf returns a client that uses only one server and does not retry.
func (w *world) clientOf(s *server, name string) *transport.Client {
	w.t.Helper()
	creds, err := w.ca.Credentials(pki.RoleCLI, name)
	must(w.t, err)
	c, err := transport.NewClient(transport.ClientConfig{Addresses: []string{"https://" + s.address()}, Credentials: creds,
		Dial: w.net.Dialer(cliHost), RetryFor: -1})
	must(w.t, err)
	return c
}

func (l *labellers) write(writer int, random *rand.Rand) {
	for value := 1; ; value++ {
		if l.try(writer, value, random) == nil {
			l.mu.Lock()
			l.last[writer] = value
			l.mu.Unlock()
		}
		select {
		case <-l.ending:
			return
		case <-time.After(time.Duration(random.IntN(500)) * time.Millisecond):
		}
	}
}

// try sends a write to random servers, always with the same request id, until its outcome is known or stop is called.
func (l *labellers) try(writer, value int, random *rand.Rand) error {
	id := model.RequestID(ulid.Make().String())
	path := "/v1/nodes/" + string(l.node(writer)) + "/label"
	body := map[string]any{"labels": map[string]string{label(writer): fmt.Sprint(value)}}
	for {
		c := l.clients[random.IntN(len(l.clients))]
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(500+random.IntN(2500))*time.Millisecond)
		_, _, err := c.Do(ctx, http.MethodPost, path, url.Values{"request_id": {string(id)}}, body)
		cancel()
		l.w.receipts.note(id, fmt.Sprintf("write %d of writer %d", value, writer), err)
		if told(err) != answeredUnknown {
			return err
		}
		select {
		case <-l.ending:
			return err
		case <-time.After(time.Duration(50+random.IntN(200)) * time.Millisecond):
		}
	}
}

func label(writer int) string { return fmt.Sprintf("writer-%d", writer) }

// node returns the id of the node whose label a writer changes.
func (l *labellers) node(writer int) model.NodeID { return l.w.nodes[writer%len(l.w.nodes)].id }

// stop stops the writers. It checks that each label has the last acknowledged value of its writer, or a later one, and
// that at least one write was acknowledged.
func (l *labellers) stop() {
	t := l.w.t
	t.Helper()
	close(l.ending)
	l.wg.Wait()
	for _, c := range l.clients {
		c.Close()
	}
	state := l.w.state()
	for writer, value := range l.last {
		if n, ok := state.Nodes.Get(l.node(writer)); !ok || !atLeast(n.Shape.Labels[label(writer)], value) {
			t.Errorf("S4: write %d of writer %d was the last one acknowledged, its label is %q", value, writer,
				n.Shape.Labels[label(writer)])
		}
	}
	if len(l.last) == 0 {
		t.Error("no write was acknowledged")
	}
}

func atLeast(text string, value int) bool {
	var got int
	_, err := fmt.Sscan(text, &got)
	return err == nil && got >= value
}
