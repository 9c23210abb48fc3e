package agent

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/duplex"
	"github.com/outspan/outspan/model"
)

// maxTunnelled is how many connections one forward may have open. Each takes up to two windows of memory.
const maxTunnelled = 64

// tunnelDial is how long the program may take to accept a connection.
const tunnelDial = 5 * time.Second

// serveForward passes connections on to a declared port of an instance. Each lane that the caller opens is a
// connection. It ends with the instance. Codes: not_running, busy, invalid, not_found.
func (a *Agent) serveForward(w http.ResponseWriter, r *http.Request) {
	var start api.ForwardStart
	g, task, release, err := a.receive(w, r, &start)
	if err != nil {
		writeProblem(w, err)
		return
	}
	defer release()
	port, err := a.portOf(model.InstanceID(r.PathValue("instance")), start.Port)
	if err != nil {
		writeProblem(w, err)
		return
	}
	t := &tunnel{ctx: g.ctx, to: net.JoinHostPort(a.cfg.Node.Address, strconv.Itoa(port)),
		room: make(chan struct{}, maxTunnelled), refusals: make(chan struct{}, maxTunnelled)}
	defer t.wg.Wait()
	g.begin(duplex.Handler{Open: t.open})
	_ = g.conn.SendMessage(api.ForwardReady{Port: port}) // an error means that the caller is gone
	err = nil
	for alive := true; alive; { // the program may end long before the rest of its instance
		select {
		case <-g.ctx.Done():
			alive = false
		case <-time.After(time.Second):
			if alive = task.Alive(); !alive {
				err = model.Refuse(driver.CodeNotRunning, "the program of instance %s has ended", task.ID()).
					WithHint(hintStatus, task.ID())
			}
		}
	}
	g.end(0, err)
}

// portOf returns the number of a port that an instance declares, by its name or number. Code: not_found.
func (a *Agent) portOf(id model.InstanceID, want string) (int, error) {
	m := a.supervisors.member(id)
	if m == nil {
		return 0, model.Refuse(model.CodeNotFound, "instance %s is not on node %s any more", id, a.cfg.Name)
	}
	var known []string
	for name, number := range inside(m.wanted()) {
		if want == strconv.Itoa(number) {
			return m.wanted().Ports[name], nil
		}
	}
	for name, number := range m.wanted().Ports {
		if want == name || want == strconv.Itoa(number) {
			return number, nil
		}
		known = append(known, fmt.Sprintf("%s (%d)", name, number))
	}
	slices.Sort(known)
	hint := "its job declares none"
	if len(known) > 0 {
		hint = "its ports are: " + strings.Join(known, ", ")
	}
	return 0, model.Refuse(model.CodeNotFound, "instance %s has no port %q", id, model.Clip(want)).WithHint("%s", hint)
}

// tunnel has the connections of one forward.
type tunnel struct {
	ctx      context.Context
	to       string
	room     chan struct{} // a place for each connection
	refusals chan struct{} // a place for each connection that is being refused
	wg       sync.WaitGroup
}

// open connects a lane to the program. It does not block. It returns an error, which ends the stream, if the caller
// goes on to open connections without reading that they are refused.
func (t *tunnel) open(l *duplex.Lane) error {
	serve, places := t.connect, t.room
	select {
	case t.room <- struct{}{}:
	default:
		serve, places = refuse, t.refusals
		select {
		case t.refusals <- struct{}{}:
		default:
			return fmt.Errorf("%w: more connections than it may open", duplex.ErrFrame)
		}
	}
	t.wg.Go(func() {
		defer func() { <-places }()
		serve(l)
	})
	return nil
}

func refuse(l *duplex.Lane) {
	l.Reset(fmt.Sprintf("a forward has at most %d connections at once", maxTunnelled))
}

// connect passes a lane on to the program, until both directions have ended or the forward ends.
func (t *tunnel) connect(l *duplex.Lane) {
	ctx, cancel := context.WithTimeout(t.ctx, tunnelDial)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", t.to)
	if err != nil {
		l.Reset("nothing accepts connections at " + t.to)
		return
	}
	defer context.AfterFunc(t.ctx, func() { conn.Close() })()
	_ = duplex.Join(l, conn) // both ends know
}
