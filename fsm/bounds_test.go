package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/outspan/outspan/model"
)

// glutton applies entries to the state s as the log would, including the limits of encoding and decoding.
type glutton struct {
	t interface {
		Helper()
		Fatal(...any)
		Fatalf(string, ...any)
	}
	s State
}

// try applies one group as an entry. It returns the refusal, or nil.
func (g *glutton) try(group ...Command) *model.Error {
	g.t.Helper()
	data, err := EncodeEntry(Entry{Format: 1, At: g.s.Now + 1, Wall: 1, Actor: "cli:ann", Groups: [][]Command{group}})
	if err != nil {
		return asRefusal(err) // too large for an entry
	}
	e, err := DecodeEntry(data)
	if err != nil {
		g.t.Fatal(err)
	}
	var results []Result
	g.s, results = g.s.Apply(g.s.Index+1, 1, e)
	return results[0].Refusal
}

func (g *glutton) must(group ...Command) {
	g.t.Helper()
	if refusal := g.try(group...); refusal != nil {
		g.t.Fatal(refusal)
	}
}

func (g *glutton) register(id string, labels, attributes map[string]string, text string) *model.Error {
	var warnings []string
	for range 100 {
		warnings = append(warnings, text)
	}
	return g.try(&NodeRegister{ID: model.NodeID(id), Name: id,
		Agent: model.AgentInfo{BootID: "b", Address: "10.0.0.1", Version: text[:min(len(text), 8)],
			Key: []byte("k"), Warnings: warnings},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 1000, MemoryBytes: 1 << 40}, PortMin: 20000, PortMax: 21000,
			Labels: labels, Attributes: attributes}})
}

// readBack checks that the state can be written to a snapshot and is read back unchanged.
func (g *glutton) readBack() {
	g.t.Helper()
	var buf bytes.Buffer
	if err := WriteSnapshot(&buf, g.s); err != nil {
		g.t.Fatalf("the state can't be written: %v", err)
	}
	s, err := ReadSnapshot(&buf)
	if err != nil {
		g.t.Fatalf("the state can't be read back: %v", err)
	}
	if Digest(s) != Digest(g.s) {
		g.t.Fatal("the state is read as another one")
	}
}

func labelsOf(n, from, size int) map[string]string {
	labels := map[string]string{}
	for i := range n {
		labels[fmt.Sprintf("l%06d", from+i)] = strings.Repeat("x", size)
	}
	return labels
}

// Whatever is written, in however many entries, the state can be written to a snapshot and read back unchanged.
func TestEveryStateIsReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &glutton{t: t, s: NewState()}
		if refusal := g.register("n1", nil, nil, "v1"); refusal != nil {
			t.Fatal(refusal)
		}
		for range rapid.IntRange(1, 12).Draw(t, "writes") {
			n, size := rapid.SampledFrom([]int{1, 60, 1000, 60_000}).Draw(t, "how many"),
				rapid.SampledFrom([]int{1, 10, 1000, 1 << 20}).Draw(t, "how long")
			if n*size > 1<<20 {
				n = max(1, 1<<20/(size+30))
			}
			from, text := rapid.IntRange(0, 1<<17).Draw(t, "from"), strings.Repeat("é", size/2)
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0:
				g.try(&NodeLabel{ID: "n1", Labels: labelsOf(n, from, size)})
			case 1:
				g.register("n1", labelsOf(min(n, 100), 0, min(size, 300)), labelsOf(min(n, 300), 0, min(size, 300)),
					text[:min(len(text), 1<<12)]+"v")
			case 2:
				g.try(&DrainStart{ID: model.DrainID(fmt.Sprint("d", from)), Nodes: append(keysIn(labelsOf(n, from, 1)), "n1"),
					Message: text, Options: model.DrainOptions{Deadline: model.Hour}})
			case 3:
				g.try(&DrainCancel{ID: model.DrainID(fmt.Sprint("d", from)), Uncordon: true})
				g.try(&NodeIntent{ID: "n1", Intent: model.IntentActive, Reason: text})
			case 4:
				g.try(&JobSubmit{Spec: wideJob(n, size)})
			case 5:
				g.try(&JobScale{Job: model.JobName(text), Group: text, Count: n})
			}
		}
		g.readBack()
	})
}

func keysIn(m map[string]string) []string { return sortedKeys(m) }

func wideJob(n, size int) model.JobSpec {
	g := model.GroupSpec{Name: "app", Count: 1,
		Exec: model.ExecSpec{Command: "/bin/app", Args: []string{strings.Repeat("x", size/2)}},
		Env:  labelsOf(min(n, 5000), 0, 1)}
	for i := range min(n, 20_000) {
		g.Checks = append(g.Checks, model.CheckSpec{Name: fmt.Sprint("c", i), Kind: model.CheckExec, Command: []string{"x"}})
	}
	return model.JobSpec{Name: "web", Groups: []model.GroupSpec{g}}
}

// A node has room for 64 labels of 256 bytes each, however many entries add them.
func TestLabelsAreBounded(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	if refusal := g.register("n1", nil, nil, "v1"); refusal != nil {
		t.Fatal(refusal)
	}
	for from := range 64 {
		g.must(&NodeLabel{ID: "n1", Labels: labelsOf(1, from, 256)})
	}
	for name, labels := range map[string]map[string]string{"one more": labelsOf(1, 64, 1),
		"a longer value": labelsOf(1, 0, 257), "thousands": labelsOf(1000, 0, 1)} {
		if refusal := g.try(&NodeLabel{ID: "n1", Labels: labels}); refusal == nil || refusal.Code != model.CodeInvalid {
			t.Errorf("%s: %v, want invalid", name, refusal)
		}
	}
	g.must(&NodeLabel{ID: "n1", Labels: map[string]string{"l000000": ""}})
	g.must(&NodeLabel{ID: "n1", Labels: labelsOf(1, 64, 1)})
	g.readBack()
}

// Each node of a drain may fail with an error, and the drain's row contains the errors of all its nodes. Long errors
// are cut, so the state can be read back.
func TestLastErrorsOfADrainAreBounded(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	var names []string
	for i := range 300 {
		names = append(names, fmt.Sprintf("n%d", i))
		if refusal := g.register(names[i], nil, nil, "v1"); refusal != nil {
			t.Fatal(refusal)
		}
	}
	g.must(&DrainStart{ID: "d1", Nodes: names, Options: model.DrainOptions{Deadline: 1}})
	for _, name := range names {
		g.must(&DrainEnd{ID: "d1", Node: model.NodeID(name), Phase: model.PhaseFailed,
			LastError: strings.Repeat("é", 50_000)})
	}
	g.readBack()
	if d, _ := g.s.Drains.Get("d1"); len(d.Nodes[0].LastError) < 1000 {
		t.Errorf("of the last error %d bytes are kept", len(d.Nodes[0].LastError))
	}
	if refusal := g.try(&DrainStart{ID: "d2", Nodes: make([]string, maxDrainNodes+1),
		Options: model.DrainOptions{Deadline: model.Hour}}); refusal == nil || refusal.Code != model.CodeInvalid {
		t.Errorf("a drain of too many nodes: %v, want invalid", refusal)
	}
}

// A refusal is stored with its request. The stored refusal is short even if a client sent a long name.
func TestRefusalsAreBounded(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	refusal := g.try(&JobScale{Job: model.JobName(strings.Repeat("é", 400_000)), Group: "app", Count: 1})
	if refusal == nil || len(refusal.Message) > maxRefusal || len(refusal.Hint) > maxRefusal {
		t.Errorf("a refusal of %d bytes", len(refusal.Error()))
	}
}

// The lists of a group are bounded: 256 checks are accepted, and 257 are refused.
func TestListsOfAGroupAreBounded(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	g.must(&JobSubmit{Spec: wideJob(256, 1)})
	if refusal := g.try(&JobSubmit{Spec: wideJob(257, 1)}); refusal == nil ||
		!strings.Contains(refusal.Message, "checks has 257 elements") {
		t.Errorf("257 checks: %v", refusal)
	}
}

// An event about a command with a very long message contains at most maxEventText bytes of the message.
func TestEventsAreBounded(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	if refusal := g.register("n1", nil, nil, "v1"); refusal != nil {
		t.Fatal(refusal)
	}
	g.must(&DrainStart{ID: "d1", Nodes: []string{"n1"}, Message: strings.Repeat("é", 400_000),
		Options: model.DrainOptions{Deadline: model.Hour}})
	for _, e := range g.s.Events.All() {
		if text := e.Data["message"]; len(text) > maxEventText {
			t.Errorf("event %s of %s has a message of %d bytes", e.Key, e.Type, len(text))
		}
	}
}

// The attributes that an agent reports have a limit in total, not only for each string, because every registration
// repeats them in the log.
func TestAttributesOfANode(t *testing.T) {
	g := &glutton{t: t}
	if refusal := g.register("n1", nil, labelsOf(60, 0, 200), "text"); refusal != nil {
		t.Errorf("13 kB: %v", refusal)
	}
	if refusal := g.register("n2", nil, labelsOf(200, 0, 200), "text"); refusal == nil ||
		refusal.Code != model.CodeInvalid {
		t.Errorf("41 kB: %v, want invalid", refusal)
	}
	long := strings.Repeat("x", maxAgentText+1)
	for what, attributes := range map[string]map[string]string{"name": {long: "x"}, "value": {"x": long}} {
		if refusal := g.register("n3", nil, attributes, "text"); refusal == nil ||
			!strings.Contains(refusal.Message, "is longer than") {
			t.Errorf("a long %s: %v, want a refusal that says so", what, refusal)
		}
	}
}

// TestRollIsRefused: a roll is refused if one of its values is out of bounds. Values at the bounds are accepted.
func TestRollIsRefused(t *testing.T) {
	s := run(t, NewState(), 1000, register("n1"))
	for name, tt := range map[string]struct {
		change func(*model.Roll)
		want   model.Code
	}{
		"as it is":         {func(*model.Roll) {}, ""},
		"a bad id":         {func(r *model.Roll) { r.ID = "a b" }, model.CodeInvalid},
		"no node":          {func(r *model.Roll) { r.Nodes = nil }, model.CodeInvalid},
		"most nodes":       {func(r *model.Roll) { r.Nodes = make([]string, maxRoll) }, ""},
		"too many nodes":   {func(r *model.Roll) { r.Nodes = make([]string, maxRoll+1) }, model.CodeInvalid},
		"parallel below":   {func(r *model.Roll) { r.Parallel = -1 }, model.CodeInvalid},
		"longest command":  {func(r *model.Roll) { r.Exec = strings.Repeat("x", maxRollExec) }, ""},
		"too long command": {func(r *model.Roll) { r.Exec = strings.Repeat("x", maxRollExec+1) }, model.CodeInvalid},
	} {
		roll := model.Roll{ID: "tuesday", Nodes: []string{"n1", "n2"}, Exec: "upgrade {node}"}
		tt.change(&roll)
		_, refusal := attempt(s, 1000, &DrainStart{ID: "d1", Nodes: []string{"n1"},
			Options: model.DrainOptions{Deadline: model.Hour, Roll: &roll}})
		wantCode(t, name, refusal, tt.want)
	}
}

// TestTextsOfARegistration: a registration is refused if one of its texts has more than maxAgentText bytes.
func TestTextsOfARegistration(t *testing.T) {
	for name, set := range map[string]func(*model.AgentInfo, string){
		"boot id":     func(a *model.AgentInfo, text string) { a.BootID = text },
		"incarnation": func(a *model.AgentInfo, text string) { a.Incarnation = text },
		"address":     func(a *model.AgentInfo, text string) { a.Address = text },
		"API address": func(a *model.AgentInfo, text string) { a.APIAddress = text },
		"version":     func(a *model.AgentInfo, text string) { a.Version = text },
		"machine":     func(a *model.AgentInfo, text string) { a.Machine = text },
		"key":         func(a *model.AgentInfo, text string) { a.Key = []byte(text) },
	} {
		for size, want := range map[int]model.Code{maxAgentText: "", maxAgentText + 1: model.CodeInvalid} {
			c := register("n1")
			set(&c.Agent, strings.Repeat("x", size))
			_, refusal := attempt(NewState(), 1000, c)
			wantCode(t, fmt.Sprintf("%s of %d bytes", name, size), refusal, want)
		}
	}
}

// TestFailuresOfAGroupAreBounded: a group's row keeps only the newest keptFailures failures.
func TestFailuresOfAGroupAreBounded(t *testing.T) {
	s := rest(t, 1)
	i0, _ := s.Instances.Get("i0")
	for range keptFailures + 3 {
		s.Now++
		s.noteFailure(i0, "crash_loop")
	}
	g, _ := s.Groups.Get("web/http")
	if n := len(g.Failures); n != keptFailures || g.Failures[n-1].At != s.Now {
		t.Errorf("%d failures are remembered, want %d", n, keptFailures)
	}
}
