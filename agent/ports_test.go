package agent

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// toldPorts keeps the last report of ports that can't be opened, and the number of reports.
type toldPorts struct {
	mu   sync.Mutex
	last []model.PortProblem
	n    int
}

func (p *toldPorts) take(list []model.PortProblem) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.n = slices.Clone(list), p.n+1
}

func (p *toldPorts) now() []model.PortProblem {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last
}

// If another process listens on an exposed port, the agent reports the port with its service and the reason. Once the
// door listens on the port, the next report does not list it.
func TestTakenDoorIsTold(t *testing.T) {
	d := newGate(t)
	var told toldPorts
	d.f.ports.tell = told.take
	holder, err := net.Listen("tcp", d.address())
	must(t, err)
	defer holder.Close()
	d.put(transport.ServiceBackends{Name: "web", Expose: d.port})
	eventually(t, "the taken port to be told", func() bool { return len(told.now()) == 1 })
	if p := told.now()[0]; p.Port != d.port || p.Service != "web" || p.Code != model.PortTaken || p.Reason == "" {
		t.Errorf("told %+v", p)
	}
	must(t, holder.Close())
	eventually(t, "the free port to be told", func() bool { return len(told.now()) == 0 })
	if st := d.status(); st.Problem != "" {
		t.Errorf("the door says %+v", st)
	}
}

// The door opens no port on which its agent, or a server of the machine, listens. Otherwise the door would take the
// port while that agent or server restarts.
func TestDoorLeavesPortsOfTheCluster(t *testing.T) {
	d := newGate(t)
	var told toldPorts
	d.f.ports.tell = told.take
	d.f.ports.reserve(d.port)
	other := freePort(t, "127.0.0.1")
	d.put(transport.ServiceBackends{Name: "web", Expose: d.port}, transport.ServiceBackends{Name: "free", Expose: other})
	eventually(t, "the reserved port to be told", func() bool { return len(told.now()) == 1 })
	if p := told.now()[0]; p.Port != d.port || p.Service != "web" || p.Code != model.PortReserved {
		t.Errorf("told %+v", p)
	}
	eventually(t, "the other port to be open", func() bool { return dials(hostPort("127.0.0.1", other)) })
	if dials(d.address()) {
		t.Error("the door listens on a port of the agent")
	}
	if n := len(d.f.status()); n != 2 {
		t.Errorf("%d services are shown", n)
	}
}

// The door closes an exposed port when the answer to a registration shows that a server on this machine listens there.
// It opens the port again when no server of the machine does.
func TestDoorFollowsTheServersOfTheMachine(t *testing.T) {
	d := newGate(t)
	d.f.ports.host = "127.0.0.1"
	d.put(transport.ServiceBackends{Name: "web", Expose: d.port})
	eventually(t, "the port to be open", func() bool { return dials(d.address()) })
	d.f.ports.learn([]string{d.address()})
	eventually(t, "the port to be closed", func() bool { return !dials(d.address()) })
	d.f.ports.learn(nil)
	eventually(t, "the port to be open again", func() bool { return dials(d.address()) })
}

func dials(address string) bool {
	conn, err := net.Dial("tcp", address)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

// No instance gets a static port on which its agent, or a server of the machine, listens.
func TestStaticPortOfTheAgentIsRefused(t *testing.T) {
	p := newPortWatch(7640)
	p.host = "10.0.0.1"
	p.learn([]string{"10.0.0.1:9001", "10.0.0.1:9002", "10.0.0.2:9003"})
	for port, refused := range map[int]bool{7640: true, 9001: true, 9002: true, 9003: false, 80: false} {
		err := p.check(port)
		if (err != nil) != refused || refused && !strings.Contains(err.Error(), "listens on it") {
			t.Errorf("port %d: %v", port, err)
		}
	}
}

// A port that the agent's own listener can't open is reported at once, in one list with the exposed ports. An exposed
// port is reported only after two failures.
func TestOwnPortsAreTold(t *testing.T) {
	var told toldPorts
	p := newPortWatch(7640)
	p.tell = told.take
	p.setOwn(7640, &model.PortProblem{Port: 7640, Code: model.PortTaken, Reason: "held"})
	web := model.PortProblem{Port: 80, Service: "web", Code: model.PortFailed, Reason: "denied"}
	p.look([]model.PortProblem{web})
	if got := told.now(); len(got) != 1 || got[0].Port != 7640 {
		t.Fatalf("after one look: %+v", got)
	}
	p.look([]model.PortProblem{web})
	if got := told.now(); len(got) != 2 || got[0] != web {
		t.Fatalf("after two looks: %+v", got)
	}
	p.setOwn(7640, nil)
	if got := told.now(); len(got) != 1 || got[0] != web {
		t.Fatalf("once the own port is open: %+v", got)
	}
	n := told.n
	for range selfGood {
		if len(told.now()) != 1 {
			t.Fatal("a port that just opened is well at once")
		}
		p.look(nil)
	}
	if got := told.now(); len(got) != 0 || told.n != n+1 {
		t.Errorf("told %+v in %d words", got, told.n-n)
	}
}

// If the reason why a port can't be opened changes, the new reason is reported once it was seen twice in a row.
func TestReasonOfAClosedPortIsToldAgain(t *testing.T) {
	var told toldPorts
	p := newPortWatch(7640)
	p.tell = told.take
	broken := model.PortProblem{Port: 80, Service: "web", Code: model.PortFailed, Reason: "the door does not work"}
	taken := model.PortProblem{Port: 80, Service: "web", Code: model.PortTaken, Reason: "another process holds it"}
	for i, step := range []struct{ sees, told model.PortProblem }{
		{broken, model.PortProblem{}}, {broken, broken}, {taken, broken}, {broken, broken}, {taken, broken},
		{taken, taken}, {taken, taken},
	} {
		p.look([]model.PortProblem{step.sees})
		var got model.PortProblem
		if list := told.now(); len(list) == 1 {
			got = list[0]
		}
		if got != step.told {
			t.Errorf("after look %d: told %+v, want %+v", i, got, step.told)
		}
	}
	if told.n != 2 {
		t.Errorf("told in %d words", told.n)
	}
}
