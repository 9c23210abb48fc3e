package series

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// rig is a server's Recorder with a state, a clock and peers of the test.
type rig struct {
	*Recorder
	machine *fsm.Machine
	index   uint64
	now     time.Time
	silence time.Duration
	fresh   bool
	local   Local
	uses    map[model.NodeID]Use
	stuck   int
	looks   int
	mu      sync.Mutex // of peers, while a test runs the Recorder
	peers   map[string]*rig
	asked   int
	got     int // bytes of answers
}

func newRig(name string) *rig {
	r := &rig{machine: fsm.NewMachine(), now: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), fresh: true,
		uses: map[model.NodeID]Use{}, peers: map[string]*rig{}}
	r.Recorder = New(Config{Server: name, State: r.machine.Current, Wall: func() time.Time { return r.now },
		Silence: func() (time.Duration, bool) { return r.silence, r.fresh }, Local: func() Local { return r.local },
		Use:     func(id model.NodeID) (Use, bool) { u, ok := r.uses[id]; return u, ok },
		Blocked: func() int { r.looks++; return r.stuck }, Peers: func() (all []Peer) {
			for name := range r.known() {
				all = append(all, Peer{Name: name, Address: name})
			}
			return all
		},
		Ask: func(_ context.Context, address, question string, body []byte) ([]byte, error) {
			r.asked++
			peer := r.known()[address]
			if peer == nil {
				return nil, model.Refuse("unavailable", "nobody is at %s", address)
			}
			answer, known, err := peer.AnswerPeer(question, body)
			if !known {
				return nil, model.Refuse(model.CodeNotFound, "there is no question %s", question)
			}
			r.got += len(answer)
			return answer, err
		}})
	return r
}

// known returns the peers.
func (r *rig) known() map[string]*rig {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.peers
}

// meet replaces the peers.
func (r *rig) meet(peers map[string]*rig) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.peers = peers
}

// apply commits commands as the leader would.
func (r *rig) apply(t testing.TB, group ...fsm.Command) {
	t.Helper()
	r.index++
	data, err := fsm.EncodeEntry(fsm.Entry{Format: model.CurrentFormat, At: model.Time(r.index), Wall: r.now.UnixMilli(),
		Actor: model.ActorLeader, Groups: [][]fsm.Command{group}})
	if err != nil {
		t.Fatal(err)
	}
	results, err := r.machine.Apply(r.index, 1, data)
	if err != nil {
		t.Fatal(err)
	}
	if results[0].Refusal != nil {
		t.Fatalf("%T: %v", group[0], results[0].Refusal)
	}
}

// cluster makes a state with a number of nodes.
func (r *rig) cluster(t testing.TB, nodes int) {
	t.Helper()
	r.apply(t, &fsm.ClusterInit{ID: "01CLUSTER", Name: "test", Settings: model.DefaultSettings()})
	for i := range nodes {
		id := model.NodeID(fmt.Sprintf("01N%05d", i))
		r.apply(t, &fsm.NodeRegister{ID: id, Name: fmt.Sprintf("n%d", i), Agent: model.AgentInfo{BootID: "b"},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: 8 << 30}}})
	}
}

// tick takes a sample, and then lets a step pass.
func (r *rig) tick(t testing.TB) {
	t.Helper()
	r.sample()
	r.now = r.now.Add(Step)
}

// values returns the values of one series since a number of steps ago, with -1 for a gap.
func (r *rig) values(t testing.TB, name string, steps int) (all []float32) {
	t.Helper()
	to := r.now.Add(-Step)
	got, err := r.Read(Query{Names: []string{name}, From: to.Add(-time.Duration(steps-1) * Step), To: to, Step: Step})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range got.Items[0].Values {
		if v == nil {
			all = append(all, -1)
		} else {
			all = append(all, *v)
		}
	}
	return all
}

// submit adds a job of instances that nobody places.
func (r *rig) submit(t testing.TB, name model.JobName, count int) {
	t.Helper()
	r.apply(t, &fsm.JobSubmit{Spec: model.JobSpec{Name: name, Groups: []model.GroupSpec{{Name: "api", Count: count,
		Exec: model.ExecSpec{Command: "/bin/true"}, Resources: model.Resources{CPU: 100, MemoryBytes: 16 << 20}}}}})
}
