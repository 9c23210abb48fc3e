package agent

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	statsInterval = time.Second             // at least between the two looks that give the used cores
	statsDisk     = 2500 * time.Millisecond // at most for measuring the work directories of one answer
	maxStats      = 32                      // questions that an agent answers at once
)

// statsServer answers GET /v1/agent/stats. Safe for concurrent use.
type statsServer struct {
	agent *Agent
	slots chan struct{}
	disk  chan struct{} // has a token while a work directory is measured
}

func newStatsServer(a *Agent) *statsServer {
	return &statsServer{agent: a, slots: make(chan struct{}, maxStats), disk: make(chan struct{}, 1)}
}

// serve answers with the use of one instance or of the instances of a job, as a list of transport.InstanceUse. It takes
// from statsInterval to statsDisk. Instances that are not on the node are left out. Codes: invalid, busy.
func (s *statsServer) serve(w http.ResponseWriter, r *http.Request) {
	job, id := model.JobName(r.URL.Query().Get("job")), model.InstanceID(r.URL.Query().Get("instance"))
	if (job == "") == (id == "") {
		writeProblem(w, model.Refuse(model.CodeInvalid, "the query names neither a job nor an instance, or both"))
		return
	}
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	default:
		writeProblem(w, model.Refuse(model.CodeBusy, "node %s tells %d others what instances use", s.agent.cfg.Name,
			maxStats).WithHint("try again in a moment"))
		return
	}
	ctx, stop := until(r.Context(), transport.Stopping(r.Context()))
	defer stop()
	var asked []*looked
	for _, m := range s.agent.supervisors.list() {
		if of, _ := m.wanted().Group.Split(); m.id == id || job != "" && of == job {
			asked = append(asked, &looked{supervisor: m})
		}
	}
	s.measure(ctx, asked)
	all := []transport.InstanceUse{}
	for _, m := range asked {
		all = append(all, m.answer())
	}
	writeJSON(w, all)
}

// looked is an instance of which the use is asked.
type looked struct {
	*supervisor
	task          Task
	before, after driver.Stats
	err           error
	disk          *diskUse // nil if it is not known
	why           string   // the disk is not known
}

// measure looks at the instances twice, and measures their work directories in between.
func (s *statsServer) measure(ctx context.Context, asked []*looked) {
	began := time.Now()
	var running []*looked
	for _, m := range asked {
		m.task = m.current()
		if m.before, m.err = s.agent.look(m.id, m.task); m.err == nil {
			running = append(running, m)
		}
	}
	if len(running) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, statsDisk)
	defer cancel()
	for _, m := range running {
		m.disk, m.why = s.diskOf(limited, m)
	}
	sleep(ctx, statsInterval-time.Since(began), nil)
	for _, m := range running {
		m.after, m.err = s.agent.look(m.id, m.task)
	}
}

// look returns what an instance uses now. Codes: not_running, state_failed.
func (a *Agent) look(id model.InstanceID, t Task) (driver.Stats, error) {
	if t == nil {
		return driver.Stats{}, model.Refuse(model.CodeNotRunning, "instance %s has not started on node %s", id, a.cfg.Name).
			WithHint("see: outspan instance why %s", id)
	}
	s, err := t.Stats()
	if errors.Is(err, &model.Error{Code: model.CodeNotRunning}) {
		err = model.Refuse(model.CodeNotRunning, "the program of instance %s has ended", id).
			WithHint("see: outspan instance why %s", id)
	}
	return s, err
}

// diskOf measures the work directory of an instance, or says why it can't. Only one directory is measured at a time, so
// that a disk that hangs holds one goroutine.
func (s *statsServer) diskOf(ctx context.Context, m *looked) (*diskUse, string) {
	dir, measures := s.agent.workDirs()
	spec := m.wanted().Spec
	switch {
	case !measures:
		return nil, "disk: this node does not measure work directories"
	case spec != nil && spec.Container != nil:
		return nil, "disk: a container has no work directory of its own"
	}
	path := dir(m.id)
	select {
	case s.disk <- struct{}{}:
	case <-ctx.Done():
		return nil, "disk: there was no time to measure it"
	}
	done := make(chan func() (*diskUse, string), 1)
	go func() { // it ends with ctx, unless the disk hangs
		defer func() { <-s.disk }()
		_, missing := os.Lstat(path)
		use, err := measureDisk(ctx, path)
		done <- func() (*diskUse, string) {
			switch {
			case missing != nil:
				return nil, "disk: it has no work directory"
			case err != nil && !use.partial:
				return nil, "disk: its work directory can't be read"
			}
			return &use, ""
		}
	}()
	select {
	case result := <-done:
		return result()
	case <-ctx.Done():
	}
	late := time.NewTimer(100 * time.Millisecond) // for what was measured so far
	defer late.Stop()
	select {
	case result := <-done:
		return result()
	case <-late.C:
		return nil, "disk: it does not answer"
	}
}

// answer returns what is told of the instance.
func (m *looked) answer() transport.InstanceUse {
	if m.err != nil {
		p := api.NewProblem(m.err)
		return transport.InstanceUse{ID: m.id, Problem: &api.StatsProblem{Code: p.Code, Message: p.Message, Hint: p.Hint}}
	}
	s := m.after
	u := api.InstanceUse{
		At: time.Now().Add(time.Duration(s.At - driver.BootNow())), Source: api.StatsOfCgroup,
		Memory: api.MemoryUse{Bytes: known(s.MemoryBytes), PeakBytes: known(s.MemoryPeak),
			LimitBytes: known(s.MemoryLimit)},
		Processes: api.ProcessUse{Count: s.Processes, Threads: known(s.Threads), ThreadsLimit: known(s.ThreadLimit)},
		Notes:     []string{},
	}
	if s.Uptime != driver.Unknown {
		u.Uptime = new(model.Duration(s.Uptime.Milliseconds()))
	}
	if s.CPU != driver.Unknown {
		u.CPU.Seconds = new(s.CPU.Seconds())
	}
	if took := time.Duration(s.At - m.before.At); s.CPU != driver.Unknown && took > 0 {
		u.CPU.Cores = new(max(0, (s.CPU-m.before.CPU).Seconds()/took.Seconds()))
		u.CPU.Interval = new(model.Duration(took.Milliseconds()))
	}
	if m.disk != nil {
		u.Disk.Bytes, u.Disk.AtLeast = &m.disk.bytes, m.disk.partial
	}
	if spec := m.wanted().Spec; spec != nil && spec.Resources.DiskBytes > 0 {
		u.Disk.LimitBytes = new(spec.Resources.DiskBytes)
	}
	if !s.Cgroup {
		u.Source = api.StatsOfProcesses
		u.Notes = append(u.Notes, "no cgroup: the numbers are sums over the processes that run; no limit is enforced")
	}
	for _, n := range [...]struct {
		known bool
		note  string
	}{
		{u.Uptime != nil, "uptime: the program's process is not known yet"},
		{u.CPU.Seconds != nil, "cpu: the cgroup has no controller that counts it"},
		{u.Memory.Bytes != nil, "memory: the cgroup has no controller that counts it"},
		{u.Memory.PeakBytes != nil || !s.Cgroup || u.Memory.Bytes == nil, "memory.peak: this kernel keeps none"},
		{u.Memory.PeakBytes != nil || s.Cgroup, "memory.peak: only kept for a cgroup"},
		{u.Processes.Threads != nil, "threads: the cgroup has no controller that counts them"},
		{m.why == "", m.why},
	} {
		if !n.known {
			u.Notes = append(u.Notes, n.note)
		}
	}
	return transport.InstanceUse{ID: m.id, Use: &u}
}

// known returns nil for driver.Unknown.
func known(n int64) *int64 {
	if n == driver.Unknown {
		return nil
	}
	return &n
}

// GroupUse is what all instances of one group on this node use. A number is driver.Unknown if it is known of none of
// them.
type GroupUse struct {
	Group       model.GroupID
	CPU         time.Duration // never shrinks while the node has an instance of the group
	MemoryBytes int64
	Processes   int
}

// groupUses adds up the CPU time of groups.
type groupUses struct {
	began driver.BootTime // when this agent began

	mu   sync.Mutex
	cpu  map[model.GroupID]time.Duration
	seen map[model.InstanceID]cpuSeen
}

func newGroupUses() *groupUses {
	return &groupUses{began: driver.BootNow(), cpu: map[model.GroupID]time.Duration{}}
}

// cpuSeen is the CPU time of a run of an instance when it was last looked at.
type cpuSeen struct {
	task Task
	cpu  time.Duration
}

// GroupUses returns what the instances on this node use, by group and in order of the groups' ids. Each call looks at
// every instance. What an instance used after the last call before its end is not counted. May be called from any
// goroutine.
func (a *Agent) GroupUses() []GroupUse {
	u := a.uses
	u.mu.Lock()
	defer u.mu.Unlock()
	sums := map[model.GroupID]*GroupUse{}
	seen := map[model.InstanceID]cpuSeen{}
	for _, m := range a.supervisors.list() {
		group := m.wanted().Group
		if group == "" { // of an earlier agent whose journal is lost, until the servers tell
			continue
		}
		if sums[group] == nil {
			sums[group] = &GroupUse{Group: group, CPU: driver.Unknown, MemoryBytes: driver.Unknown}
		}
		task := m.current()
		if before := u.seen[m.id]; before.task == task { // in case that it can't be read now
			seen[m.id] = before
		}
		s, err := a.look(m.id, task)
		if err != nil {
			continue
		}
		sums[group].add(s)
		if s.CPU != driver.Unknown {
			u.cpu[group] += u.since(u.seen[m.id], task, s)
			seen[m.id] = cpuSeen{task, s.CPU}
		}
	}
	u.seen = seen
	for group := range u.cpu {
		if sums[group] == nil {
			delete(u.cpu, group)
		}
	}
	var all []GroupUse
	for group, sum := range sums {
		if cpu, ok := u.cpu[group]; ok {
			sum.CPU = cpu
		}
		all = append(all, *sum)
	}
	slices.SortFunc(all, func(a, b GroupUse) int { return cmp.Compare(a.Group, b.Group) })
	return all
}

func (g *GroupUse) add(s driver.Stats) {
	g.Processes += s.Processes
	if s.MemoryBytes != driver.Unknown {
		g.MemoryBytes = max(0, g.MemoryBytes) + s.MemoryBytes
	}
}

// since returns the CPU time that a run used since it was seen. Of a run that began before this agent, only what it
// uses from now on counts, so that the counter of a restarted agent begins at 0.
func (u *groupUses) since(before cpuSeen, task Task, now driver.Stats) time.Duration {
	switch {
	case before.task == task:
		return max(0, now.CPU-before.cpu)
	case now.Uptime == driver.Unknown || now.Uptime > time.Duration(now.At-u.began):
		return 0
	}
	return now.CPU
}
