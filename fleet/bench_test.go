package fleet

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// The fleet of the benchmarks: 5,000 nodes, and 1,000 jobs with 100 instances each.
const (
	benchNodes = 5000
	benchJobs  = 1000
	benchCount = 100
	benchEpoch = 2 // of the nodes, which one entry registers
)

func apply(tb testing.TB, m *fsm.Machine, groups ...[]fsm.Command) {
	tb.Helper()
	data, err := fsm.EncodeEntry(fsm.Entry{Format: 1, Actor: model.ActorLeader, Groups: groups})
	if err != nil {
		tb.Fatal(err)
	}
	results, err := m.Apply(m.Current().Index+1, 1, data)
	if err != nil {
		tb.Fatal(err)
	}
	for _, r := range results {
		if r.Refusal != nil {
			tb.Fatal(r.Refusal)
		}
	}
}

func nodeID(n int) model.NodeID { return model.NodeID(fmt.Sprintf("01K9ZX4Q8B2M7V5T%010d", n)) }

func instanceID(job, slot int) model.InstanceID {
	return fsm.DeriveInstanceID(model.Seen{Index: 1}, "", model.NewGroupID(jobName(job), "api"), slot, 0)
}

func jobName(n int) model.JobName { return model.JobName(fmt.Sprintf("job-%04d", n)) }

// newFleet returns a Machine with nodes and jobs whose instances are ready.
func newFleet(tb testing.TB, nodes, jobs, count int) *fsm.Machine {
	tb.Helper()
	m := fsm.NewMachine()
	settings := model.DefaultSettings()
	settings.EventLimit = 1000
	apply(tb, m, []fsm.Command{&fsm.ClusterInit{ID: "01CLUSTER", Name: "bench", Settings: settings}})
	var groups [][]fsm.Command
	flush := func() { apply(tb, m, groups...); groups = nil }
	for n := range nodes {
		groups = append(groups, []fsm.Command{&fsm.NodeRegister{ID: nodeID(n), Name: fmt.Sprintf("node-%04d", n),
			Agent: model.AgentInfo{BootID: "b"},
			Shape: model.NodeShape{Capacity: model.Resources{CPU: 64_000, MemoryBytes: 256 << 30}}}},
			[]fsm.Command{&fsm.NodeReport{ID: nodeID(n), Epoch: benchEpoch, Full: true}})
	}
	flush()
	for j := range jobs {
		spec := model.JobSpec{Name: jobName(j), Groups: []model.GroupSpec{{Name: "api", Count: count,
			Exec: model.ExecSpec{Command: "/bin/true"}, Resources: model.Resources{CPU: 100, MemoryBytes: 16 << 20}}}}
		groups = append(groups, []fsm.Command{&fsm.JobSubmit{Spec: spec}})
		for slot := range count {
			i := j*count + slot
			id, group := instanceID(j, slot), model.NewGroupID(jobName(j), "api")
			groups = append(groups, []fsm.Command{&fsm.InstancePlace{ID: id, Group: group, Slot: slot,
				Version: 1, Node: nodeID(i % nodes), Cause: model.CauseUser}},
				[]fsm.Command{report(i%nodes, id, 1, model.ObservedReady)})
		}
		if len(groups) > 2000 {
			flush()
		}
	}
	if len(groups) > 0 {
		flush()
	}
	return m
}

func report(node int, id model.InstanceID, generation uint64, o model.Observed) *fsm.NodeReport {
	return &fsm.NodeReport{ID: nodeID(node), Epoch: benchEpoch,
		Instances: []model.InstanceStatus{{ID: id, Generation: generation, Observed: o}}}
}

func processorTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// started returns a Publisher whose ticks the caller makes, and n readers that have the whole snapshot.
func started(tb testing.TB, m *fsm.Machine, n int) (*Publisher, []*conn) {
	tb.Helper()
	p := newTestPublisher(m)
	var readers []*conn
	for range n {
		c, err := p.join(Scope{}, seesAll)
		if err != nil {
			tb.Fatal(err)
		}
		halt(p)
		drain(tb, p, c)
		readers = append(readers, c)
	}
	return p, readers
}

// drain takes all frames that are ready, and returns their number of bytes.
func drain(tb testing.TB, p *Publisher, c *conn) (total int) {
	tb.Helper()
	for {
		b, err := p.take(c)
		if err != nil {
			tb.Fatal(err)
		}
		if b == nil {
			return total
		}
		total += len(b)
	}
}

// BenchmarkSnapshot encodes the snapshot of one more reader.
func BenchmarkSnapshot(b *testing.B) {
	m := newFleet(b, benchNodes, benchJobs, benchCount)
	p, readers := started(b, m, 1)
	c, total, held := readers[0], 0, 0
	b.ReportAllocs()
	for b.Loop() {
		p.mu.Lock()
		c.begin(p.table)
		p.mu.Unlock()
		held = max(held, c.memory()+ownBytes)
		total = drain(b, p, c)
	}
	b.ReportMetric(float64(total), "bytes")
	b.ReportMetric(float64(held), "bytes-held")
	leaveAll(p, readers)
}

// BenchmarkFirstReader copies the state into columns, which the first reader waits for.
func BenchmarkFirstReader(b *testing.B) {
	m := newFleet(b, benchNodes, benchJobs, benchCount)
	b.ReportAllocs()
	for b.Loop() {
		newTable(m.Current())
	}
}

// BenchmarkJoin adds one more reader, with the same rights or for another job each time, for which the ticks of the
// others wait.
func BenchmarkJoin(b *testing.B) {
	m := newFleet(b, benchNodes, benchJobs, benchCount)
	for name, sight := range map[string]Sight{"all": {}, "some": {Key: "some", Node: func(string) bool { return true },
		Instance: func(job model.JobName, _ model.ClassName, _ string) bool { return job[len(job)-1] != '7' }}} {
		b.Run(name, func(b *testing.B) {
			p := newTestPublisher(m)
			look := func(*fsm.State) (Sight, error) { return sight, nil }
			first := must(p.join(Scope{}, look))(b)
			halt(p)
			b.ReportAllocs()
			for b.Loop() {
				p.leave(must(p.join(Scope{}, look))(b))
			}
			p.leave(first)
		})
		b.Run(name+"/jobs", func(b *testing.B) {
			p := newTestPublisher(m)
			look := func(*fsm.State) (Sight, error) { return sight, nil }
			first := must(p.join(Scope{}, look))(b)
			halt(p)
			for n := 0; b.Loop(); n++ {
				p.leave(must(p.join(Scope{Job: jobName(n % benchJobs)}, look))(b))
			}
			p.leave(first)
		})
	}
}

// BenchmarkTick makes ticks with 250 changed instances, as 1,000 changes a second give, for readers with equal rights,
// with different rights, and for readers that are always late. It reports the processor time of all readers for each
// second of the stream.
func BenchmarkTick(b *testing.B) {
	m := newFleet(b, benchNodes, benchJobs, benchCount)
	generation, next, unready := uint64(1), 0, make([]bool, benchJobs*benchCount)
	change := func() {
		generation++
		var groups [][]fsm.Command
		for range 250 {
			job, slot := next/benchCount%benchJobs, next%benchCount
			o, i := model.ObservedUnready, job*benchCount+slot
			if unready[i] = !unready[i]; !unready[i] {
				o = model.ObservedReady
			}
			groups = append(groups, []fsm.Command{report(i%benchNodes, instanceID(job, slot),
				generation, o)})
			next += 37
		}
		apply(b, m, groups...)
	}
	for _, bench := range []struct {
		name    string
		readers int
		sight   func(int) Sight
		late    bool
	}{
		{"readers=0", 0, nil, false},
		{"readers=1", 1, func(int) Sight { return Sight{} }, false},
		{"readers=64", 64, func(int) Sight { return Sight{} }, false},
		{"readers=64/late", 64, func(int) Sight { return Sight{} }, true},
		{"readers=64/rights=64", 64, func(n int) Sight {
			return Sight{Key: fmt.Sprint(n), Instance: func(job model.JobName, _ model.ClassName, _ string) bool {
				return int(job[len(job)-1]-'0') != n%10
			}}
		}, false},
	} {
		b.Run(bench.name, func(b *testing.B) {
			p := newTestPublisher(m)
			var readers []*conn
			for n := range bench.readers {
				sight := bench.sight(n)
				c, err := p.join(Scope{}, func(*fsm.State) (Sight, error) { return sight, nil })
				if err != nil {
					b.Fatal(err)
				}
				halt(p)
				drain(b, p, c)
				readers = append(readers, c)
			}
			var used time.Duration
			bytes, ticks := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				change()
				b.StartTimer()
				if bench.readers == 0 {
					continue
				}
				began := processorTime(b)
				p.tick(b.Context())
				ticks++
				for i, c := range readers {
					if bench.late && (ticks+i)%2 == 0 {
						continue
					}
					bytes += drain(b, p, c)
				}
				used += processorTime(b) - began
			}
			if bench.readers > 0 {
				second := time.Duration(ticks) * tickTime
				b.ReportMetric(float64(used.Microseconds())/second.Seconds(), "cpu-us/s")
				b.ReportMetric(float64(bytes)/second.Seconds()/float64(bench.readers), "bytes/s/reader")
			}
			leaveAll(p, readers)
		})
	}
}
