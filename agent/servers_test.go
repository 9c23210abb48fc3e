package agent

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// The client that agents use implements Servers.
var _ Servers = (*transport.Client)(nil)

// servers is a control plane with one server: the real state behind the agent's protocol, without network, raft or
// leader. The test makes the leader's decisions.
type servers struct {
	t    testing.TB
	m    *fsm.Machine
	born time.Time

	mu      sync.Mutex
	down    bool                         // every call fails
	others  bool                         // another agent has the node's id, so registrations are refused
	reports []string                     // "id observed reason", in order of arrival
	calls   map[string]int               // number of calls, by operation
	answer  func(*transport.Assignments) // changes an answer before it is sent; may be nil
	facts   []uint64                     // the facts generation of each report
	alters  []func(*transport.Assignment)
	altered chan struct{} // closed and replaced when alter is called
	sparing bool          // assignments have specs only if the agent asks for everything
	waits   time.Duration // how long the last long poll of assignments may wait
	slow    time.Duration // how long the answer to a report takes once the report is applied
}

func newServers(t testing.TB) *servers { return newServersOf(t, "c1") }

func newServersOf(t testing.TB, cluster string) *servers {
	s := &servers{t: t, m: fsm.NewMachine(), born: time.Now(), calls: map[string]int{}, altered: make(chan struct{})}
	s.apply(&fsm.ClusterInit{ID: cluster, Name: "test", Settings: model.DefaultSettings()})
	return s
}

// try applies commands as one entry. It returns their refusal, or nil if they were applied.
func (s *servers) try(group ...fsm.Command) *model.Error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := model.Time(time.Since(s.born).Milliseconds())
	data, err := fsm.EncodeEntry(fsm.Entry{Format: model.CurrentFormat, At: at, Wall: time.Now().UnixMilli(), Term: 1,
		Actor: "test", Groups: [][]fsm.Command{group}})
	if err != nil {
		s.t.Errorf("encode: %v", err)
		return model.Refuse(model.CodeInternal, "%v", err)
	}
	results, err := s.m.Apply(s.m.State().Index+1, 1, data)
	if err != nil {
		s.t.Errorf("apply: %v", err)
		return model.Refuse(model.CodeInternal, "%v", err)
	}
	return results[0].Refusal
}

func (s *servers) apply(group ...fsm.Command) {
	s.t.Helper()
	if refusal := s.try(group...); refusal != nil {
		s.t.Fatalf("apply %T: %v", group[0], refusal)
	}
}

func (s *servers) setDown(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *servers) setOthers(others bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others = others
}

func (s *servers) change(f func(*transport.Assignments)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

// enter counts a call. It returns an error while the servers are down. A registration also fails while another agent
// has the node's id.
func (s *servers) enter(op string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls[op]++
	switch {
	case s.down:
		return model.Refuse(model.CodeUnreachable, "no server could be reached")
	case s.others && op == "register":
		return model.Refuse(model.CodeNodeTaken, "the node is in use by another agent")
	}
	return nil
}

func (s *servers) count(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[op]
}

func (s *servers) Register(_ context.Context, r transport.RegisterRequest) (transport.RegisterReply, error) {
	if err := s.enter("register"); err != nil {
		return transport.RegisterReply{}, err
	}
	if refusal := s.try(&fsm.NodeRegister{ID: r.Node, Name: r.Name, Agent: r.Agent, Shape: r.Shape,
		Seen: r.Seen}); refusal != nil {
		return transport.RegisterReply{}, refusal
	}
	st := s.m.State()
	n, _ := st.Nodes.Get(r.Node)
	return transport.RegisterReply{Epoch: n.Agent.Epoch, Key: []byte("key"), Heartbeat: 300 * model.Millisecond,
		Cluster: st.Cluster.ID,
		Servers: []transport.ServerInfo{{APIAddress: "10.0.0.1:7640"}, {APIAddress: "10.0.0.2:7640"}}}, nil
}

func (s *servers) Report(_ context.Context, r transport.ReportRequest) (transport.ReportReply, error) {
	if err := s.enter("report"); err != nil {
		return transport.ReportReply{}, err
	}
	if refusal := s.try(&fsm.NodeReport{ID: r.Node, Epoch: r.Epoch, Full: r.Full, Instances: r.Instances,
		FactsGen: r.FactsGen, Holds: r.Holds, Incarnation: r.Incarnation, Self: r.Self}); refusal != nil {
		return transport.ReportReply{}, refusal
	}
	time.Sleep(s.slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts = append(s.facts, r.FactsGen)
	for _, i := range r.Instances {
		line := fmt.Sprintf("%s %s", i.ID, i.Observed)
		if i.Reason != "" {
			line += " " + i.Reason
		}
		s.reports = append(s.reports, line)
	}
	return transport.ReportReply{Index: s.m.State().Index}, nil
}

// history returns the reported states of one instance in order, with their reasons. Equal neighbours are given once.
func (s *servers) history(id model.InstanceID) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, r := range s.reports {
		if len(r) > len(id) && r[:len(id)] == string(id) {
			list = append(list, r[len(id)+1:])
		}
	}
	return slices.Compact(list)
}

// poll calls newer at once, and again after each change of the topic or of the alterations. It returns nil once newer
// has returned true, or after the time wait. If ctx is canceled, poll returns the error of ctx.
func (s *servers) poll(ctx context.Context, topic fsm.Topic, wait model.Duration, newer func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(wait)*time.Millisecond)
	defer cancel()
	for {
		woken, give := s.m.WatchTopic(topic)
		s.mu.Lock()
		altered := s.altered
		s.mu.Unlock()
		if newer() {
			give()
			return nil
		}
		select {
		case <-woken:
			give()
		case <-altered:
			give()
		case <-ctx.Done():
			give()
			if ctx.Err() == context.DeadlineExceeded {
				return nil
			}
			return ctx.Err()
		}
	}
}

func (s *servers) Assignments(ctx context.Context, r transport.AssignmentsRequest) (transport.Assignments, error) {
	if err := s.enter("assignments"); err != nil {
		return transport.Assignments{}, err
	}
	if r.Wait > 0 { // a long poll, and not a probe
		s.mu.Lock()
		s.waits = time.Duration(r.Wait) * time.Millisecond
		s.mu.Unlock()
	}
	var out transport.Assignments
	err := s.poll(ctx, fsm.Topic("assigned/"+r.Node), r.Wait, func() bool {
		out = s.assignments(r)
		return out.Register || out.Index > r.Index || out.Incarnation != r.Incarnation
	})
	s.mu.Lock()
	change := s.answer
	s.mu.Unlock()
	if change != nil {
		change(&out)
	}
	return out, err
}

// honest reports whether answers are sent unaltered. Altered answers may claim a later state than the real one.
func (s *servers) honest() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.answer == nil && len(s.alters) == 0
}

func (s *servers) assignments(r transport.AssignmentsRequest) transport.Assignments {
	st := s.m.State()
	n, ok := st.Nodes.Get(r.Node)
	out := transport.Assignments{Incarnation: st.Incarnation, Unconfirmed: st.Unconfirmed}
	if st.Confirmed > 0 {
		out.Confirmed = max(st.Now.Sub(st.Confirmed), 1)
	}
	if !ok || n.Agent.Epoch != r.Epoch || n.Health == model.HealthOffline || s.honest() && st.Moment().Before(r.Seen) {
		out.Register = true
		return out
	}
	s.mu.Lock()
	alters, sparing := slices.Clone(s.alters), s.sparing
	s.mu.Unlock()
	out.Index = n.Assigned + uint64(len(alters))
	for c := range st.PullsOn(r.Node) {
		out.Images = append(out.Images, c.Image)
	}
	out.Unconfirmed = out.Unconfirmed || n.Restore.InventoryOwed || n.Restore.Behind
	for _, h := range n.Restore.Unknown {
		switch {
		case st.Keeps(h):
			out.Keep = append(out.Keep, h.ID)
		case !st.SlotFilled(h.Group, h.Slot):
			out.WithGrace = append(out.WithGrace, h.ID)
		}
	}
	for i := range st.InstancesOn(r.Node) {
		if i.Terminal() {
			continue
		}
		spec, _ := st.Spec(i.Group, i.Version)
		job, _ := i.Group.Split()
		one := transport.Assignment{
			ID: i.ID, Group: i.Group, Job: job, Slot: i.Slot, Desired: i.Desired, Spec: spec, Ports: i.Claims.Ports.Map(),
			RestartSeq: i.Links.RestartSeq, Grace: i.Marks.GraceOverride, Memory: spec.Resources.MemoryBytes,
			Unsettled: st.SlotUnsettled(spec, i.Group, i.Slot) != nil,
		}
		one.Copies, one.Held = st.CopiesUsed(i)
		for _, alter := range alters {
			alter(&one)
		}
		if told := i.Marks.CreatedIndex <= r.Index || sparing && r.Index > 0; told &&
			r.Incarnation == st.Incarnation && len(alters) == 0 {
			one.Spec = nil
		}
		out.Instances = append(out.Instances, one)
	}
	return out
}

// alter makes f change every assignment in later answers, after the functions of earlier calls. Waiting polls for
// assignments return.
func (s *servers) alter(f func(*transport.Assignment)) {
	s.t.Helper()
	s.mu.Lock()
	s.alters = append(s.alters, f)
	close(s.altered)
	s.altered = make(chan struct{})
	s.mu.Unlock()
}

// lastFacts returns the facts generation of the last report.
func (s *servers) lastFacts() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts[len(s.facts)-1]
}

func (s *servers) Services(ctx context.Context, r transport.ServicesRequest) (transport.Services, error) {
	if err := s.enter("services"); err != nil {
		return transport.Services{}, err
	}
	var out transport.Services
	err := s.poll(ctx, "services", r.Wait, func() bool {
		out = s.services()
		return out.Index > r.Index
	})
	return out, err
}

func (s *servers) Peers(ctx context.Context, r transport.PeersRequest) (transport.Peers, error) {
	if err := s.enter("peers"); err != nil {
		return transport.Peers{}, err
	}
	var out transport.Peers
	err := s.poll(ctx, "instances", r.Wait, func() bool {
		st := s.m.State()
		out = transport.Peers{Incarnation: st.Incarnation}
		for _, known := range r.Groups {
			g, ok := st.Groups.Get(known.Group)
			if !ok || r.Incarnation == st.Incarnation && g.PeersAt <= known.At {
				continue
			}
			list := transport.GroupPeers{Group: g.ID, At: g.PeersAt}
			for i := range st.PeersOf(g.ID) {
				n, _ := st.Nodes.Get(i.Node)
				list.Members = append(list.Members, transport.Peer{
					Slot: i.Slot, Instance: i.ID, Node: n.Name, Address: n.Agent.Address,
					Ports: i.Claims.Ports.Map(), State: i.PeerState(),
				})
			}
			raw, _ := transport.EncodeCBOR(list)
			out.Lists = append(out.Lists, raw)
		}
		return len(out.Lists) > 0
	})
	return out, err
}

func (s *servers) services() transport.Services {
	st := s.m.State()
	var out transport.Services
	for _, svc := range st.Services.All() {
		b := transport.ServiceBackends{Name: svc.Name, Expose: svc.Expose, Generation: svc.Generation}
		out.Index = max(out.Index, svc.Generation)
		for i := range st.InstancesOf(svc.Group) {
			if i.Ready() {
				n, _ := st.Nodes.Get(i.Node)
				port, _ := i.Claims.Ports.Get(svc.Port)
				b.Backends = append(b.Backends,
					model.Backend{Instance: i.ID, Node: i.Node, Address: hostPort(n.Agent.Address, port)})
			}
		}
		out.Services = append(out.Services, b)
	}
	return out
}

func (s *servers) instance(id model.InstanceID) fsm.Instance {
	st := s.m.State()
	i, ok := st.Instances.Get(id)
	if !ok {
		return fsm.Instance{}
	}
	return *i
}

// submit submits a job with one group, and returns the group's id. A count of 0 becomes 1.
func (s *servers) submit(job string, g model.GroupSpec) model.GroupID {
	s.t.Helper()
	g.Name = "g"
	if g.Count == 0 {
		g.Count = 1
	}
	s.apply(&fsm.JobSubmit{Spec: model.JobSpec{Name: model.JobName(job), Groups: []model.GroupSpec{g}}.Expand()})
	return model.NewGroupID(model.JobName(job), "g")
}

// place puts a new instance into the group's slot, on the node, and returns its id.
func (s *servers) place(group model.GroupID, slot int, node model.NodeID, ports model.Ports) model.InstanceID {
	s.t.Helper()
	st := s.m.State()
	g, _ := st.Groups.Get(group)
	id := fsm.DeriveInstanceID(st.Moment(), "", group, slot, g.Placed)
	s.apply(&fsm.InstancePlace{ID: id, Group: group, Slot: slot, Version: g.Version, Node: node, Ports: ports,
		Cause: model.CauseScaleUp})
	return id
}

// stop requests a graceful stop that bypasses budgets. If grace is not nil, it overrides the group's grace.
func (s *servers) stop(id model.InstanceID, grace *model.Duration) {
	s.t.Helper()
	s.apply(&fsm.InstanceStop{ID: id, Cause: model.CauseUser, By: "test", Grace: grace, Bypass: true})
}
