package fsm

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// wantingJob returns a job with one group for each of the counts.
func wantingJob(name model.JobName, counts ...int) model.JobSpec {
	spec := model.JobSpec{Name: name}
	for i, n := range counts {
		spec.Groups = append(spec.Groups,
			model.GroupSpec{Name: fmt.Sprint("g", i), Count: n, Exec: model.ExecSpec{Command: "/bin/x"}})
	}
	return spec
}

// limitRefused checks the code of a refusal, and that each string in says is in the refusal's message or hint.
func limitRefused(t *testing.T, what string, refusal *model.Error, code model.Code, says ...string) {
	t.Helper()
	if refusal == nil || refusal.Code != code {
		t.Errorf("%s: %v, want %s", what, refusal, code)
		return
	}
	for _, text := range says {
		if !strings.Contains(refusal.Message+"; "+refusal.Hint, text) {
			t.Errorf("%s: %q; %q does not say %q", what, refusal.Message, refusal.Hint, text)
		}
	}
}

// The number of instances that the groups of a job want in all is limited. Every command that could raise this number
// checks the limit.
func TestWantedInstancesOfAJobAreBounded(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	limitRefused(t, "three groups", g.try(&JobSubmit{Spec: wantingJob("web", 100_000, 100_000, 1)}), model.CodeInvalid,
		"job web would want 200001 instances", "may want 200000", "lower the counts")
	g.must(&JobSubmit{Spec: wantingJob("web", 100_000, 99_999, 1)})
	limitRefused(t, "scale", g.try(&JobScale{Job: "web", Group: "g2", Count: 2}), model.CodeInvalid, "200001")
	g.must(&JobScale{Job: "web", Group: "g0", Count: 1})
	g.must(&JobSubmit{Spec: wantingJob("web", 1, 2, 100_000)})
	g.must(&JobScale{Job: "web", Group: "g2", Count: 3})
	g.must(&JobRevert{Job: "web", Version: 1})
	g.readBack()
}

// The number of instances that all jobs want in all is limited too. If one job wants fewer, another may want more.
func TestWantedInstancesOfAllJobsAreBounded(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	g.must(&JobSubmit{Spec: wantingJob("a", 100_000, 100_000)})
	g.must(&JobSubmit{Spec: wantingJob("b", 100_000, 100_000)})
	g.must(&JobSubmit{Spec: wantingJob("c", 100_000)})
	const code = model.Code("quota_exceeded:instances")
	limitRefused(t, "one more", g.try(&JobSubmit{Spec: wantingJob("d", 1)}), code,
		"may want 500000", "they want 500000", "job d asks for 1 more", "scale another job down")
	g.must(&JobSubmit{Spec: wantingJob("d", 0)})
	limitRefused(t, "scale", g.try(&JobScale{Job: "d", Group: "g0", Count: 7}), code, "asks for 7 more")
	g.must(&JobScale{Job: "a", Group: "g0", Count: 99_990})
	g.must(&JobScale{Job: "d", Group: "g0", Count: 7})

	g.must(&JobSubmit{Spec: wantingJob("c", 10)})
	g.must(&JobSubmit{Spec: wantingJob("d", 100_000)})
	limitRefused(t, "revert", g.try(&JobRevert{Job: "c", Version: 1}), code, "asks for 99990 more")
	g.must(&JobStop{Job: "a"})
	g.must(&JobRevert{Job: "c", Version: 1})
	limitRefused(t, "run again", g.try(&JobSubmit{Spec: wantingJob("a", 100_000, 100_000)}), code,
		"job a asks for 200000 more")
	g.must(&JobStop{Job: "d", Purge: true})
	g.must(&JobSubmit{Spec: wantingJob("a", 100_000, 100_000)})
	if err := Check(g.s); err != nil {
		t.Error(err)
	}
	g.readBack()
}

// For the limit of instances that a job may want, a system group wants one instance on each node.
func TestSystemGroupsCountOnEachNode(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	for i := range 4000 {
		g.must(register(model.NodeID(fmt.Sprintf("n%04d", i))))
	}
	spec := wantingJob("mon", make([]int, 51)...)
	for i := range spec.Groups {
		spec.Groups[i].Role = model.RoleSystem
	}
	limitRefused(t, "51 groups", g.try(&JobSubmit{Spec: spec}), model.CodeInvalid, "204000")
	spec.Groups = spec.Groups[:50]
	g.must(&JobSubmit{Spec: spec})
	g.must(register("n4000")) // now the job wants 200,050 instances, more than the limit
	spec.Groups = spec.Groups[1:]
	g.must(&JobSubmit{Spec: spec})
	if err := Check(g.s); err != nil {
		t.Error(err)
	}
}

// If a number of wanted instances is already above its limit, for example after an upgrade, commands may lower or keep
// the number, but not raise it.
func TestAboveTheBoundsOnlyLessIsWanted(t *testing.T) {
	f := NewState().fork()
	for i := range 3 {
		f.Index++
		spec := wantingJob(model.JobName(fmt.Sprint("j", i)), 100_000, 100_000, 100_000)
		f.submit(spec.Expand(), submission{})
	}
	g := &glutton{t: t, s: f.publish()}
	limitRefused(t, "more of one", g.try(&JobSubmit{Spec: wantingJob("j0", 100_000, 100_000, 100_000, 1)}),
		model.CodeInvalid)
	limitRefused(t, "a small one", g.try(&JobSubmit{Spec: wantingJob("small", 1)}), model.QuotaExceeded("instances"),
		"they want 900000")
	g.must(&JobScale{Job: "j0", Group: "g0", Count: 99_999})
	limitRefused(t, "back", g.try(&JobScale{Job: "j0", Group: "g0", Count: 100_000}), model.CodeInvalid)
	g.must(&JobSubmit{Spec: wantingJob("j1", 100_000, 100_000, 99_000)})
	g.must(&JobRestart{Job: "j1"})
	g.must(&JobStop{Job: "j2"})
	g.must(&JobSubmit{Spec: wantingJob("j1", 100_000, 1)})
	g.must(&JobSubmit{Spec: wantingJob("small", 1)})
	g.readBack()
}

// The leader can revert a job even if the versions of all jobs then exceed their limit of bytes. The same revert by a
// person is refused. The limit of instances applies to both kinds of reverts.
func TestRevertsAtTheBounds(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	g.must(&JobSubmit{Spec: wantingJob("web", 100_000, 100_000)})
	g.must(&JobSubmit{Spec: wantingJob("web", 1)})
	g.must(&JobScale{Job: "web", Group: "g0", Count: 90_000})
	for _, job := range []model.JobName{"a", "b"} {
		g.must(&JobSubmit{Spec: wantingJob(job, 100_000, 100_000)})
	}
	g.must(&JobScale{Job: "web", Group: "g0", Count: 100_000})
	for _, keep := range []bool{false, true} {
		revert := &JobRevert{Job: "web", Version: 1, KeepCounts: keep}
		limitRefused(t, "too many", g.try(revert), model.QuotaExceeded("instances"), "asks for 100000 more")
	}
	g.must(&JobStop{Job: "b"})

	for i := range 100 {
		if g.try(&JobSubmit{Spec: longJob(model.JobName(fmt.Sprint("j", i)), 1<<20*19/10)}) != nil {
			break
		}
	}
	room := maxJobsBytes - g.s.jobSum(everyJob).bytes
	g.must(&JobSubmit{Spec: longJob("web", room-1000)})
	revert := &JobRevert{Job: "web", Version: 2, KeepCounts: true, Message: strings.Repeat("x", 2000)}
	limitRefused(t, "by hand", g.try(revert), model.QuotaExceeded("job_bytes"), "job web adds")
	e := Entry{Format: 1, At: g.s.Now + 1, Actor: model.ActorLeader, Groups: [][]Command{{revert}}}
	after, results := g.s.Apply(g.s.Index+1, 1, e)
	if job, _ := after.Jobs.Get("web"); results[0].Refusal != nil || job.Version != 4 {
		t.Errorf("by the leader: %v", results[0].Refusal)
	}
}

// A revert with KeepCounts, as the leader makes it, keeps the counts of groups that were scaled. If the job would then
// want too many instances, the revert takes all counts of the earlier version.
func TestRevertWithoutRoomForScaledCounts(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	g.must(&JobSubmit{Spec: wantingJob("web", 1, 99_999)})
	g.must(&JobSubmit{Spec: wantingJob("web", 1, 0)})
	g.must(&JobScale{Job: "web", Group: "g0", Count: 100_000})
	for _, job := range []model.JobName{"a", "b"} {
		g.must(&JobSubmit{Spec: wantingJob(job, 100_000, 100_000)})
	}
	g.must(&JobRevert{Job: "web", Version: 1, KeepCounts: true})
	one, _ := g.s.Groups.Get("web/g0")
	other, _ := g.s.Groups.Get("web/g1")
	if one.Count != 1 || other.Count != 99_999 {
		t.Errorf("the groups want %d and %d", one.Count, other.Count)
	}
}

// longJob returns a job whose spec is a little larger than the given number of bytes.
func longJob(name model.JobName, bytes int) model.JobSpec {
	spec := wantingJob(name, 0)
	spec.Groups[0].Exec.Args = []string{strings.Repeat("x", bytes)}
	return spec
}

// The kept versions of a job have a limit of bytes in all. A job keeps its last ten versions, and older versions that
// instances still run.
func TestBytesOfAJobAreBounded(t *testing.T) {
	const large = 1 << 20
	g := &glutton{t: t, s: NewState()}
	for i := range 30 { // about the last ten of these versions are kept
		g.must(&JobSubmit{Spec: longJob("web", large+i)})
	}
	for v := range 4 { // each new version pushes out an old one of 1 MiB
		g.must(&JobSubmit{Spec: longJob("web", large*3/2+v)})
	}
	var refusal *model.Error
	accepted := 0
	for ; refusal == nil && accepted < 20; accepted++ {
		refusal = g.try(&JobSubmit{Spec: longJob("web", large*17/10+accepted)})
	}
	limitRefused(t, "ever more", refusal, model.CodeTooLarge, "the versions of job web",
		"a job may have 16777216", "job stop web --purge")
	current := longJob("web", large*17/10+accepted-2)
	g.must(&JobSubmit{Spec: current}) // submitting the current spec changes nothing
	limitRefused(t, "restart", g.try(&JobRestart{Job: "web"}), model.CodeTooLarge)
	g.must(&JobScale{Job: "web", Group: "g0", Count: 3})
	g.must(&JobSubmit{Spec: longJob("web", 1)})
	if sum := g.s.jobSum("web").bytes; sum > maxJobBytes {
		t.Errorf("of job web %d bytes are kept", sum)
	}
	if err := Check(g.s); err != nil {
		t.Error(err)
	}
	g.must(&JobStop{Job: "web", Purge: true})
	g.must(&JobSubmit{Spec: longJob("web", large*19/10)})
	g.readBack()
}

// The kept versions of all jobs, including stopped ones, have a limit of bytes in all. Purging a job makes room. The
// limit also applies in a state that was read from a snapshot.
func TestBytesOfAllJobsAreBounded(t *testing.T) {
	const large = 1 << 20 * 19 / 10
	g := &glutton{t: t, s: NewState()}
	g.must(&JobSubmit{Spec: longJob("small", 1)})
	var refusal *model.Error
	n := 0
	for ; refusal == nil && n < 100; n++ {
		refusal = g.try(&JobSubmit{Spec: longJob(model.JobName(fmt.Sprint("j", n)), large)})
	}
	const code = model.Code("quota_exceeded:job_bytes")
	limitRefused(t, "one more", refusal, code, "the kept versions of all jobs have",
		"all may have 134217728", "job stop JOB --purge")
	if n < 60 {
		t.Errorf("job %d is refused", n)
	}
	var buf bytes.Buffer
	if err := WriteSnapshot(&buf, g.s); err != nil {
		t.Fatal(err)
	}
	read, err := ReadSnapshot(&buf)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := read.jobSum(everyJob), g.s.jobSum(everyJob); got != want {
		t.Errorf("read back the sums are %+v, they were %+v", got, want)
	}
	g.s = read
	limitRefused(t, "after a restore", g.try(&JobSubmit{Spec: longJob("more", large)}), code)
	g.must(&JobScale{Job: "small", Group: "g0", Count: 2})
	g.must(&JobStop{Job: "j0"})
	limitRefused(t, "after a stop", g.try(&JobSubmit{Spec: longJob("more", large)}), code)
	g.must(&JobStop{Job: "j0", Purge: true})
	g.must(&JobSubmit{Spec: longJob("more", large)})
	if err := Check(g.s); err != nil {
		t.Error(err)
	}
}

// Check finds sums of a job's counts and bytes that don't match the rows.
func TestCheckFindsWrongSumsOfJobs(t *testing.T) {
	g := &glutton{t: t, s: NewState()}
	g.must(&JobSubmit{Spec: wantingJob("web", 3)})
	for name, spoil := range map[string]func(*State){
		"counts":  func(s *State) { s.addSum("web", jobSum{counts: 1}, jobSum{}) },
		"systems": func(s *State) { s.addSum("web", jobSum{}, jobSum{systems: 1}) },
		"bytes":   func(s *State) { s.addSum("web", jobSum{}, jobSum{bytes: 1}) },
		"missing": func(s *State) { s.jobSums.del("web") },
	} {
		f := g.s.fork()
		spoil(f)
		if err := Check(*f); err == nil || !strings.Contains(err.Error(), "sum up to") {
			t.Errorf("%s: Check says %v", name, err)
		}
	}
}
