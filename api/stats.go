package api

import (
	"time"

	"github.com/outspan/outspan/model"
)

// InstanceStats says what an instance uses, as the kernel of its node counts it. What the kernel does not tell is null.
type InstanceStats struct {
	ID    model.InstanceID `json:"id"`
	Job   model.JobName    `json:"job"`
	Group string           `json:"group"`
	Slot  int              `json:"slot"`
	Node  string           `json:"node" doc:"name"`

	Use *InstanceUse `json:"use" doc:"null with an error"`
	// Problem is set only in JobStats, and if Use is nil.
	Problem *StatsProblem `json:"error,omitempty" doc:"why there are no numbers: the agent does not answer, or the instance does not run"`
}

// StatsProblem says why the use of an instance is not known.
type StatsProblem struct {
	Code    model.Code `json:"code"`
	Message string     `json:"message"`
	Hint    string     `json:"hint,omitempty"`
}

// InstanceUse is what an instance uses.
type InstanceUse struct {
	At        time.Time       `json:"at" doc:"when the kernel was asked, by the clock of the node"`
	Source    StatsSource     `json:"source" enum:"cgroup,processes" doc:"cgroup: the kernel counts for the instance; processes: sums over its processes, on a node without cgroups"`
	Uptime    *model.Duration `json:"uptime" doc:"since its program was started"`
	CPU       CPUUse          `json:"cpu"`
	Memory    MemoryUse       `json:"memory"`
	Processes ProcessUse      `json:"processes"`
	Disk      WorkDirUse      `json:"disk"`
	Notes     []string        `json:"notes" doc:"what is not known, and why"`
}

// StatsSource says what the kernel was asked about.
type StatsSource string

// The sources.
const (
	StatsOfCgroup    StatsSource = "cgroup"
	StatsOfProcesses StatsSource = "processes"
)

// CPUUse is the processor time of an instance.
type CPUUse struct {
	Seconds  *float64        `json:"seconds" doc:"used since the start of its program"`
	Cores    *float64        `json:"cores" doc:"used on average over the interval; 1 is a whole core"`
	Interval *model.Duration `json:"interval" doc:"that cores is of"`
}

// MemoryUse is the memory of an instance.
type MemoryUse struct {
	Bytes      *int64 `json:"bytes" doc:"without page cache that the kernel can drop; without cgroups, memory that processes share counts once for each"`
	PeakBytes  *int64 `json:"peak_bytes" doc:"the most since the start of its program, with page cache"`
	LimitBytes *int64 `json:"limit_bytes" doc:"that the kernel enforces; null: none"`
}

// ProcessUse is how many processes an instance has.
type ProcessUse struct {
	Count        int    `json:"count" doc:"processes"`
	Threads      *int64 `json:"threads" doc:"processes and further threads, which the limit is for"`
	ThreadsLimit *int64 `json:"threads_limit" doc:"that the kernel enforces; null: none"`
}

// WorkDirUse is the space that the work directory of an instance takes.
type WorkDirUse struct {
	Bytes      *int64 `json:"bytes" doc:"allocated for files below its work directory, without volumes"`
	AtLeast    bool   `json:"at_least" doc:"it may be more: too much is in it, or part of it can't be read"`
	LimitBytes *int64 `json:"limit_bytes" doc:"above which a problem is reported; null: none"`
}

// JobStats says what the instances of a job use that have not ended, sorted by group, slot and id.
type JobStats struct {
	Job    model.JobName   `json:"job"`
	Items  []InstanceStats `json:"items"`
	Hidden int             `json:"hidden,omitempty" doc:"instances that the caller may not read"`
	Index  uint64          `json:"index"`
}
