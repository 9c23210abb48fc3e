package ui

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/fleet"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	nodesOfRack = 50
	onlineEpoch = 2 // of the nodes of a synthetic fleet after its first entry
)

// synthetic is a fleet whose state is made up. Its page is served by the real publisher. Only the test's goroutine
// changes it.
type synthetic struct {
	*cluster
	tb        testing.TB
	machine   *fsm.Machine
	publisher *fleet.Publisher
	random    *rand.Rand
	ids       []model.InstanceID // of instances that change
	nodes     []model.NodeID     // of each of them
	version   uint64             // of the last report
	unready   map[model.InstanceID]bool

	alone   atomic.Bool // no leader is known
	streams atomic.Int64
	bytes   atomic.Int64 // of frames
	opened  atomic.Int64 // streams in all
	mu      sync.Mutex
	cut     context.CancelFunc // breaks all streams
	life    context.Context
}

func newSynthetic(tb testing.TB, nodes, jobs, count int) *synthetic {
	tb.Helper()
	s := &synthetic{cluster: newCluster(), tb: tb, machine: fsm.NewMachine(), random: rand.New(rand.NewPCG(1, 2)),
		version: 1, unready: map[model.InstanceID]bool{}}
	s.heal()
	s.publisher = fleet.New(fleet.Config{Server: "s1", Build: "1", Changes: s.machine.Changes,
		Leader: func() string {
			if s.alone.Load() {
				return ""
			}
			return "s1"
		},
		Age: func() time.Duration { return 0 }, Problems: func() map[api.ProblemCode]int { return nil }})
	settings := model.DefaultSettings()
	settings.EventLimit = 1000
	s.apply([]fsm.Command{&fsm.ClusterInit{ID: "01CLUSTER", Name: "synthetic", Settings: settings}})
	s.addNodes(nodes)
	s.addJobs(nodes, jobs, count)
	s.spoil(nodes)
	s.answers["/v1/nodes"] = s.nodeList()
	s.answers["/v1/auth/whoami"] =
		`{"subject":"me","verbs":["node.read","node.drain","server.read","job.read","instance.read"]}`
	var list []string
	for j := range jobs {
		list = append(list, fmt.Sprintf(`{"name":"job-%04d","class":%q}`, j, classOf(j)))
	}
	s.answers["/v1/jobs"] = `{"items":[` + strings.Join(list, ",") + `]}`
	return s
}

func classOf(job int) model.ClassName {
	classes := []model.ClassName{model.ClassProduction, model.ClassProduction, model.ClassBatch, model.ClassCritical,
		model.ClassSystem}
	return classes[job%len(classes)]
}

func syntheticNode(n int) (model.NodeID, string) {
	return model.NodeID(fmt.Sprintf("01K9ZX4Q8B2M7V5T%010d", n)), fmt.Sprintf("node-%04d", n)
}

func (s *synthetic) addNodes(nodes int) {
	var groups [][]fsm.Command
	for n := range nodes {
		id, name := syntheticNode(n)
		groups = append(groups, []fsm.Command{&fsm.NodeRegister{ID: id, Name: name, Agent: model.AgentInfo{BootID: "b"},
			Shape: model.NodeShape{Labels: map[string]string{"rack": fmt.Sprintf("rack-%02d", n/nodesOfRack)},
				Capacity: model.Resources{CPU: 32_000 << (n % 2), MemoryBytes: 64 << 30 << (n % 2)}}}},
			[]fsm.Command{&fsm.NodeReport{ID: id, Epoch: onlineEpoch, Full: true}})
	}
	s.apply(groups...)
}

func (s *synthetic) addJobs(nodes, jobs, count int) {
	var groups [][]fsm.Command
	room := make([]int, nodes) // MiB of memory; CPU is enough then
	for n := range room {
		room[n] = 64 << 10 << (n % 2)
	}
	for j := range jobs {
		memory := 512 << (j % 4)
		spec := model.JobSpec{Name: model.JobName(fmt.Sprintf("job-%04d", j)), Class: classOf(j),
			Groups: []model.GroupSpec{{Name: "api", Count: count, Exec: model.ExecSpec{Command: "/bin/true"},
				Resources: model.Resources{CPU: int64(100 << (j % 4)), MemoryBytes: int64(memory) << 20}}}}
		groups = append(groups, []fsm.Command{&fsm.JobSubmit{Spec: spec}})
		group := model.NewGroupID(spec.Name, "api")
		for slot := range count {
			n := s.random.IntN(nodes)
			for rack := n / nodesOfRack; room[n] < memory+256 || s.random.IntN(8) < rack%6; rack = n / nodesOfRack {
				n = s.random.IntN(nodes)
			}
			room[n] -= memory + 256 // an instance has an overhead
			node, _ := syntheticNode(n)
			id := fsm.DeriveInstanceID(model.Seen{Index: 1}, "", group, slot, 0)
			observed := model.ObservedReady
			if s.random.IntN(30) == 0 {
				observed = [...]model.Observed{model.ObservedBooting, model.ObservedUnready,
					model.ObservedDraining}[s.random.IntN(3)]
			}
			groups = append(groups, []fsm.Command{&fsm.InstancePlace{ID: id, Group: group, Slot: slot, Version: 1,
				Node: node, Cause: model.CauseUser}}, []fsm.Command{s.report(node, id, observed)})
			if n%nodesOfRack > 8 { // the others get states in which they report nothing
				s.ids, s.nodes = append(s.ids, id), append(s.nodes, node)
			}
		}
		if len(groups) > 2000 || j == jobs-1 {
			s.apply(groups...)
			groups = nil
		}
	}
}

// spoil gives some nodes other states.
func (s *synthetic) spoil(nodes int) {
	var groups [][]fsm.Command
	for n := range nodes {
		id, _ := syntheticNode(n)
		health := func(h model.Health) fsm.Command {
			return &fsm.NodeHealth{ID: id, Health: h, BootID: "b", Epoch: onlineEpoch}
		}
		rack := n / nodesOfRack
		switch one := n % nodesOfRack; {
		case one == 1 && rack%3 == 0:
			groups = append(groups, []fsm.Command{&fsm.NodeIntent{ID: id, Intent: model.IntentCordoned}})
		case one == 3 && rack%4 == 1:
			groups = append(groups, []fsm.Command{&fsm.NodeIntent{ID: id, Intent: model.IntentDisabled}})
		case one == 5 && rack%5 == 2:
			groups = append(groups, []fsm.Command{health(model.HealthDegraded)})
		case one == 6 && rack%6 == 3:
			groups = append(groups, []fsm.Command{health(model.HealthUnreachable)})
		case one < 9 && rack == 1:
			groups = append(groups, []fsm.Command{&fsm.DrainStart{ID: model.DrainID("drain-" + id), Nodes: []string{string(id)},
				Options: model.DrainOptions{Deadline: model.Hour}}})
		case one == 8 && rack%7 == 4:
			groups = append(groups, []fsm.Command{health(model.HealthOffline)})
		}
	}
	s.apply(groups...)
}

func (s *synthetic) report(node model.NodeID, id model.InstanceID, o model.Observed) *fsm.NodeReport {
	return &fsm.NodeReport{ID: node, Epoch: onlineEpoch,
		Instances: []model.InstanceStatus{{ID: id, Generation: s.version, Observed: o}}}
}

func (s *synthetic) apply(groups ...[]fsm.Command) {
	s.tb.Helper()
	data, err := fsm.EncodeEntry(fsm.Entry{Format: 1, Actor: model.ActorLeader, Groups: groups})
	if err != nil {
		s.tb.Fatal(err)
	}
	results, err := s.machine.Apply(s.machine.Current().Index+1, 1, data)
	if err != nil {
		s.tb.Fatal(err)
	}
	for i, r := range results {
		if r.Refusal != nil {
			s.tb.Fatalf("%+v: %v", groups[i], r.Refusal)
		}
	}
}

// changeSome makes n instances unready, or ready again.
func (s *synthetic) changeSome(n int) {
	s.version++
	var groups [][]fsm.Command
	for range n {
		i := s.random.IntN(len(s.ids))
		o := model.ObservedUnready
		if s.unready[s.ids[i]] = !s.unready[s.ids[i]]; !s.unready[s.ids[i]] {
			o = model.ObservedReady
		}
		groups = append(groups, []fsm.Command{s.report(s.nodes[i], s.ids[i], o)})
	}
	s.apply(groups...)
}

// intent changes what a node is wanted to be.
func (s *synthetic) intent(n int, intent model.Intent) {
	id, _ := syntheticNode(n)
	s.apply([]fsm.Command{&fsm.NodeIntent{ID: id, Intent: intent}})
}

func (s *synthetic) nodeList() string {
	var one map[string]any
	if err := json.Unmarshal([]byte(nodeN1), &one); err != nil {
		s.tb.Fatal(err)
	}
	var list []string
	for id, n := range s.machine.Current().Nodes.All() {
		one["id"], one["name"], one["state"], one["labels"] = id, n.Name, n.State(), n.Shape.Labels
		text, err := json.Marshal(one)
		if err != nil {
			s.tb.Fatal(err)
		}
		list = append(list, string(text))
	}
	return `{"items":[` + strings.Join(list, ",") + `]}`
}

// heal lets streams be opened again.
func (s *synthetic) heal() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.life, s.cut = context.WithCancel(context.Background())
}

// breakStreams ends all streams in the middle, as a server that dies does.
func (s *synthetic) breakStreams() {
	s.mu.Lock()
	s.cut()
	s.mu.Unlock()
	s.heal()
}

func (s *synthetic) forward(ctx context.Context, r client.ForwardedRequest) (*http.Response, error) {
	if r.Path != "/v1/page/stream" {
		resp, err := s.cluster.forward(ctx, r)
		if err == nil {
			resp.Header = http.Header{"Content-Type": {"application/json"},
				api.HeaderIndex: {fmt.Sprint(s.machine.Current().Index)}}
		}
		return resp, err
	}
	s.cluster.mu.Lock()
	err := s.errors[r.Path]
	s.cluster.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.opened.Add(1)
	from, to := io.Pipe()
	s.mu.Lock()
	over := s.life.Done()
	s.mu.Unlock()
	go func() {
		s.streams.Add(1)
		defer s.streams.Add(-1)
		_ = s.publisher.Serve(ctx, over, fleet.Scope{},
			func(*fsm.State) (fleet.Sight, error) { return fleet.Sight{Status: true}, nil },
			func(b []byte) error {
				s.bytes.Add(int64(len(b)))
				_, err := to.Write(b)
				return err
			}) // it ends with the request
		_ = to.CloseWithError(io.ErrUnexpectedEOF)
	}()
	context.AfterFunc(ctx, func() { _ = from.Close() })
	return &http.Response{StatusCode: http.StatusOK, Body: from,
		Header: http.Header{"Content-Type": {"application/octet-stream"}}}, nil
}
