package fsm

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// closedPorts returns a report of n1's agent about ports that it can't open.
func closedPorts(gen uint64, ports ...model.PortProblem) *NodeReport {
	return &NodeReport{ID: "n1", Self: &model.SelfReport{Gen: gen, Ports: ports}}
}

// A port that an agent can't open is recorded until a later report does not list it. The node does not become degraded.
func TestPortsThatAnAgentCantOpen(t *testing.T) {
	s := oneNode(t, model.DefaultSettings())
	web := model.PortProblem{Port: 8080, Service: "web", Code: model.PortTaken, Reason: "another process holds it"}
	own := model.PortProblem{Port: 7640, Code: model.PortTaken, Reason: "another process holds it"}
	odd := []model.PortProblem{{Port: 0, Code: model.PortTaken}, {Port: 1, Code: "odd"},
		{Port: 1, Service: "/", Code: model.PortTaken}}
	for _, step := range []struct {
		name  string
		does  *NodeReport
		ports []model.PortProblem
		news  bool // what News returns before the report is applied
	}{
		{"one is closed", closedPorts(2, web), []model.PortProblem{web}, true},
		{"told again", closedPorts(2, web), []model.PortProblem{web}, false},
		{"two, one of them twice, and nonsense", closedPorts(3, append(odd, web, own, own)...),
			[]model.PortProblem{own, web}, true},
		{"one is open", closedPorts(5, web), []model.PortProblem{web}, true},
		{"an agent that tells nothing", &NodeReport{ID: "n1", Full: true}, nil, true},
		{"nothing more", &NodeReport{ID: "n1", Full: true}, nil, false},
	} {
		n, _ := s.Nodes.Get("n1")
		step.does.Epoch = n.Agent.Epoch
		if got := step.does.News(&s); got != step.news {
			t.Errorf("%s: news: %v", step.name, got)
		}
		s = run(t, s, 2000, step.does)
		n, _ = s.Nodes.Get("n1")
		if !slices.Equal(n.Self.Ports, step.ports) {
			t.Errorf("%s: kept %+v, want %+v", step.name, n.Self.Ports, step.ports)
		}
		if n.State() != model.NodeActive {
			t.Errorf("%s: the node is %s", step.name, n.State())
		}
	}
	var told []string
	for _, e := range s.Events.All() {
		if e.Type == model.EventNodePort {
			told = append(told,
				fmt.Sprintf("%s %s -> %s closed=%s open=%s", e.Subject, e.Before, e.After, e.Data["closed"], e.Data["open"]))
		}
	}
	want := []string{
		"node/n1 ok -> port_taken closed=8080 web open=",
		"node/n1 port_taken -> port_taken closed=7640 open=",
		"node/n1 port_taken -> port_taken closed= open=7640",
		"node/n1 port_taken -> ok closed= open=8080 web",
	}
	if !slices.Equal(told, want) {
		t.Errorf("events: %q, want %q", told, want)
	}
}

// At most MaxPortProblems ports of a node are recorded. Their texts are cut.
func TestPortProblemsAreBounded(t *testing.T) {
	s := oneNode(t, model.DefaultSettings())
	var many []model.PortProblem
	for i := range 2 * model.MaxPortProblems {
		many = append(many,
			model.PortProblem{Port: i + 1, Code: model.PortFailed, Reason: strings.Repeat("x", 2*maxAgentText)})
	}
	c := closedPorts(2, many...)
	n, _ := s.Nodes.Get("n1")
	c.Epoch = n.Agent.Epoch
	s = run(t, s, 2000, c)
	n, _ = s.Nodes.Get("n1")
	if got := n.Self.Ports; len(got) != model.MaxPortProblems || len(got[0].Reason) > maxAgentText {
		t.Errorf("kept %d, reasons of %d bytes", len(got), len(got[0].Reason))
	}
	if !soundPorts(n.Self.Ports) || soundPorts([]model.PortProblem{{Port: 2}, {Port: 1}}) ||
		soundPorts([]model.PortProblem{{Port: 1}, {Port: 1}}) {
		t.Error("soundPorts does not tell")
	}
}

// A job can't have a port that the cluster uses on every node, because the job could take the port while an agent
// restarts. A port that only one agent listens on is allowed.
func TestPortsOfTheClusterAreRefused(t *testing.T) {
	s := oneNode(t, model.DefaultSettings())
	n, _ := s.Nodes.Get("n1")
	s = run(t, s, 1000, &NodeRegister{ID: "n1", Name: n.Name, Shape: n.Shape, Agent: model.AgentInfo{
		BootID: "b", Address: "10.0.0.1", APIAddress: "10.0.0.1:9123",
	}})
	for _, one := range []struct {
		expose, static int
		says           string
	}{
		{expose: 80}, {expose: 443}, {static: 22}, {static: 8080},
		{expose: 7640, says: "service api: expose is 7640"}, {expose: 7642, says: "service api: expose is 7642"},
		{static: 7640, says: "port http: static is 7640"}, {static: 7642, says: "port http: static is 7642"},
		{expose: 9123}, {static: 9123},
	} {
		spec := webSpec()
		g := &spec.Groups[0]
		g.Ports = []model.PortSpec{{Name: "http", Static: one.static}}
		g.Services = []model.ServiceSpec{{Name: "api", Port: "http", Expose: one.expose}}
		_, refusal := attempt(s, 1000, &JobSubmit{Spec: spec})
		switch {
		case one.says == "" && refusal != nil:
			t.Errorf("%+v is refused: %v", one, refusal)
		case one.says != "" && (refusal == nil || !strings.Contains(refusal.Message, one.says) || refusal.Hint == ""):
			t.Errorf("%+v: refusal %+v", one, refusal)
		}
	}
}

// A report creates one event for all its ports, and the size of this event is limited. Trim limits the number of ports
// before the report is written to the log, and does not change the original list.
func TestPortsOfAReportMakeOneEvent(t *testing.T) {
	s := oneNode(t, model.DefaultSettings())
	var many []model.PortProblem
	for i := range 3 * model.MaxPortProblems {
		many = append(many,
			model.PortProblem{Port: 20000 + i, Service: "web", Code: model.PortTaken,
				Reason: strings.Repeat("x", 2*maxAgentText)})
	}
	for gen, ports := range [][]model.PortProblem{many, nil, {{Port: 1, Code: model.PortTaken}},
		{{Port: 1, Code: model.PortFailed}}} {
		c := closedPorts(uint64(gen+2), ports...)
		said := c.Self
		n, _ := s.Nodes.Get("n1")
		c.Epoch = n.Agent.Epoch
		c.Trim(&s)
		if len(c.Self.Ports) > model.MaxPortProblems || len(said.Ports) != len(ports) {
			t.Errorf("%d ports are left of a report, and %d where it came from", len(c.Self.Ports), len(said.Ports))
		}
		before := portEvents(&s)
		s = run(t, s, 2000, c)
		events := portEvents(&s)[len(before):]
		if len(events) != 1 {
			t.Errorf("a report of %d ports makes %d events", len(ports), len(events))
			continue
		}
		size := 0
		for _, v := range events[0].Data {
			size += len(v)
		}
		if size > 2<<10 || len(ports) > 1 && !strings.HasSuffix(events[0].Data["closed"], "20015 web, and 48 more") {
			t.Errorf("%d bytes: %v", size, events[0].Data)
		}
	}
}

func portEvents(s *State) []Event {
	var list []Event
	for _, e := range s.Events.All() {
		if e.Type == model.EventNodePort {
			list = append(list, *e)
		}
	}
	return list
}
