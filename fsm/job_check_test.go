package fsm

import (
	"fmt"
	"testing"

	"github.com/outspan/outspan/model"
)

// portedJob returns a job with the given number of groups. Each group has the given number of static ports and an
// exposed service. All port numbers differ, and the lowest is first.
func portedJob(name string, first, groups, ports int) model.JobSpec {
	spec := model.JobSpec{Name: model.JobName(name)}
	for i := range groups {
		g := model.GroupSpec{
			Name: fmt.Sprint("g", i), Count: 1, Exec: model.ExecSpec{Command: "/bin/app"},
			Resources: model.Resources{MemoryBytes: 1 << 20},
			Services:  []model.ServiceSpec{{Name: fmt.Sprint(name, "-", i), Port: "p0", Expose: first + i}},
		}
		for k := range ports {
			g.Ports = append(g.Ports, model.PortSpec{Name: fmt.Sprint("p", k), Static: first + groups + i*ports + k})
		}
		spec.Groups = append(spec.Groups, g)
	}
	return spec.Expand()
}

// portedState returns a cluster with 100 nodes, 100 small jobs with ports, and the job many. The job many has ten
// versions, each with 16 groups of 64 ports.
func portedState(t testing.TB) State {
	s := NewState()
	apply := func(c Command) {
		var results []Result
		if s, results = s.Apply(s.Index+1, 1,
			Entry{Format: model.CurrentFormat, At: 1000, Actor: "test", Groups: [][]Command{{c}}}); results[0].Refusal != nil {
			t.Fatalf("%T: %v", c, results[0].Refusal)
		}
	}
	apply(&ClusterInit{ID: "c1", Name: "test", Settings: model.DefaultSettings()})
	for i := range 100 {
		apply(register(model.NodeID(fmt.Sprint("n", i))))
		apply(&JobSubmit{Spec: portedJob(fmt.Sprint("other", i), 1000+10*i, 1, 4)})
	}
	for i := range 10 {
		spec := portedJob("many", 40_000, 16, 64)
		spec.Groups[0].Exec.Command = fmt.Sprint("/bin/v", i)
		apply(&JobSubmit{Spec: spec})
	}
	return s
}

// If one value of surroundings checks many versions of a job, it reads each service, group and node only once. For each
// static port of the versions, it reads one more node.
func TestSurroundingsAreReadOnce(t *testing.T) {
	s := portedState(t)
	around := s.around("many")
	for _, v := range s.keptBefore("many", 100) {
		if refusal := around.check(&v.Spec); refusal != nil {
			t.Fatal(refusal)
		}
	}
	rows, ports := s.Services.Len()+s.Groups.Len()+s.Nodes.Len(), 16*64
	if most := rows + ports + 1; around.read > most {
		t.Errorf("%d rows were looked at for 10 versions, want at most %d", around.read, most)
	}
	if versions := len(s.keptBefore("many", 5)); versions != 4 {
		t.Errorf("%d versions before 5 are kept, want 4", versions)
	}
}

// A check refuses services and ports that other jobs have, and a group that needs more memory than any node has.
func TestSurroundingsRefuse(t *testing.T) {
	s := portedState(t)
	for _, test := range []struct {
		name   string
		change func(*model.GroupSpec)
		code   model.Code
	}{
		{"nothing", func(*model.GroupSpec) {}, ""},
		{"a service of another job", func(g *model.GroupSpec) { g.Services[0].Name = "other7-0" }, model.CodeServiceTaken},
		{"an exposed port that another job exposes", func(g *model.GroupSpec) {
			g.Services[0].Expose = 1070
		}, model.CodeServiceTaken},
		{"an exposed port that another job has as its own", func(g *model.GroupSpec) {
			g.Services[0].Expose = 1073
		}, model.CodeServiceTaken},
		{"an own port that another job exposes", func(g *model.GroupSpec) {
			g.Ports[0].Static = 1070
		}, model.CodeServiceTaken},
		{"too much memory", func(g *model.GroupSpec) { g.Resources.MemoryBytes = 1 << 50 }, model.CodeNoMemory},
	} {
		spec := portedJob("many", 40_000, 2, 2)
		test.change(&spec.Groups[1])
		wantCode(t, test.name, s.around("many").check(&spec), test.code)
	}
}

// takenEverywhere returns true only if, on each node, another job of the same or a higher class has the static port.
func TestPortTakenEverywhere(t *testing.T) {
	const port = 1001
	s := run(t, historyOf(t), 1000, &JobSubmit{Spec: portedJob("web", 1000, 1, 1)},
		&InstancePlace{ID: "i1", Group: "web/g0", Version: 1, Node: "n1", Ports: model.Ports{{Name: "p0", Number: port}},
			Cause: model.CauseScaleUp})
	full := func(s State, job model.JobName, rank int) bool {
		around := s.around(job)
		first := around.takenEverywhere(port, rank)
		if around.takenEverywhere(port+1, rank) || around.takenEverywhere(port, rank) != first {
			t.Errorf("another port is taken, or it is not the same a second time")
		}
		return first
	}
	holder, _ := s.Jobs.Get("web")
	rank := s.ClassRank(holder.Class)
	if !full(s, "b", rank) {
		t.Error("the only node has it taken by the same class, and it is said to be free")
	}
	if full(s, "b", rank-1) {
		t.Error("what holds it is less important")
	}
	if full(s, "web", rank) {
		t.Error("the job holds it itself")
	}
	if full(run(t, s, 1000, register("n2"), &NodeReport{ID: "n2", Full: true}), "b", rank) {
		t.Error("another node has it free")
	}
}

// alike gives all kept versions of a job the same spec, and completes their rollouts.
func alike(s State, name model.JobName) State {
	f := s.fork()
	job, _ := s.Jobs.Get(name)
	current, _ := s.JobVersion(name, job.Version)
	for version := uint64(1); version <= job.Version; version++ {
		if _, kept := s.JobVersion(name, version); kept {
			next := *current
			next.Version, next.Completed = version, true
			f.putVersion(&next)
		}
	}
	return f.publish()
}

// BenchmarkRevertTarget measures the search for the version to revert to, for a job with many ports and equal versions.
func BenchmarkRevertTarget(b *testing.B) {
	s := alike(portedState(b), "many")
	job, _ := s.Jobs.Get("many")
	for b.Loop() {
		s.RevertTarget(job)
	}
}

// BenchmarkCheckOfPorts measures the check of a job with many ports against the other jobs and the nodes.
func BenchmarkCheckOfPorts(b *testing.B) {
	s := portedState(b)
	spec := portedJob("many", 40_000, 64, 256)
	for b.Loop() {
		if refusal := s.around("many").check(&spec); refusal != nil {
			b.Fatal(refusal)
		}
	}
}
