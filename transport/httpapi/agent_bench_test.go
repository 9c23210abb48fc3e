package httpapi_test

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// BenchmarkAgent measures a server's work for calls of an agent that runs one instance. It includes neither connections
// nor raft.
func BenchmarkAgent(b *testing.B) {
	r := newRig(b)
	r.world()
	r.place("inst-0", 2, "01N2", model.ObservedReady)
	who := model.Subject{Kind: model.SubjectAgent, Name: "n2"}
	ask := func(b *testing.B, call transport.AgentCall, question func(i int) any) {
		b.ReportAllocs()
		for i := 1; b.Loop(); i++ {
			body, err := transport.EncodeCBOR(question(i))
			if err == nil {
				_, err = r.servers["s1"].api.AnswerAgent(b.Context(), who, call, body)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("assignments", func(b *testing.B) {
		ask(b, transport.CallAssignments, func(int) any {
			return transport.AssignmentsRequest{Node: "01N2", Epoch: r.epoch("01N2")}
		})
	})
	b.Run("report", func(b *testing.B) {
		ask(b, transport.CallReport, func(i int) any {
			status := model.InstanceStatus{ID: "inst-0", Generation: uint64(i) + 10,
				Observed: []model.Observed{model.ObservedReady, model.ObservedUnready}[i%2]}
			return transport.ReportRequest{Node: "01N2", Epoch: r.epoch("01N2"), Instances: []model.InstanceStatus{status}}
		})
	})
}

// BenchmarkRelay measures reports that 256 agents send to a follower at the same time. It includes everything between
// the agents and the state except raft. The agents, the follower and the leader share one process.
func BenchmarkRelay(b *testing.B) {
	const agents = 256
	r := newRig(b, "s1", "s2")
	r.world()
	reporters := make([]*transport.Client, agents)
	for i := range agents {
		name := fmt.Sprintf("a%03d", i)
		r.apply(&fsm.NodeRegister{ID: model.NodeID("02" + name), Name: name,
			Agent: model.AgentInfo{BootID: "b", Address: "127.0.0.1"}})
		reporters[i] = r.client(pki.RoleAgent, name, "s2")
	}
	var cpu syscall.Rusage
	spent := func() int64 {
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &cpu)
		return cpu.Utime.Nano() + cpu.Stime.Nano()
	}
	round := func(gen int) {
		var wg sync.WaitGroup
		for i, c := range reporters {
			wg.Go(func() {
				q := transport.ReportRequest{Node: model.NodeID(fmt.Sprintf("02a%03d", i)),
					Epoch: r.epoch(model.NodeID(fmt.Sprintf("02a%03d", i))), FactsGen: uint64(gen)}
				if _, err := c.Report(b.Context(), q); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	for i := range reporters { // opens the connections, so that handshakes are not measured
		_, _ = reporters[i].Report(b.Context(),
			transport.ReportRequest{Node: model.NodeID(fmt.Sprintf("02a%03d", i)),
				Epoch: r.epoch(model.NodeID(fmt.Sprintf("02a%03d", i))), FactsGen: 1})
	}
	gen, before := 1, spent()
	for b.Loop() {
		gen++
		round(gen)
	}
	b.ReportMetric(float64(spent()-before)/float64(agents*(gen-1)), "cpu-ns/report")
}
