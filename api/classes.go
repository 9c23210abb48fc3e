package api

import (
	"github.com/outspan/outspan/model"
)

// ClassView is one priority class. In a list, the most important class comes first.
type ClassView struct {
	Name         model.ClassName    `json:"name"`
	Rank         int                `json:"rank" doc:"0 is served first"`
	Default      bool               `json:"default"`
	Jobs         int                `json:"jobs"`
	MaxDown      model.Amount       `json:"max_down" doc:"of a group that has no budget of its own"`
	MaxDownFloor int                `json:"max_down_floor" doc:"at least as many may be down"`
	Quota        model.Quota        `json:"quota" doc:"0: no limit"`
	Used         ClassUsage         `json:"used" doc:"by the instances that count toward the quota: all that are not stopped"`
	PreemptEqual model.PreemptEqual `json:"preempt_equal" enum:"off,fair" doc:"may an instance that fits nowhere preempt one of its own class; fair: where it lowers the largest owner's share"`
}

// ClassUsage is what the instances of a class use together, including the overhead. Stopped instances are not included.
type ClassUsage struct {
	MemoryBytes int64 `json:"memory_bytes"`
	Instances   int   `json:"instances"`
}

// ClassReply is the answer to a change of a class.
type ClassReply struct {
	Written
	Class *ClassView `json:"class,omitempty"`
}

// ClassBody makes or changes a class.
type ClassBody struct {
	Below          model.ClassName    `json:"below,omitempty" doc:"stand directly below this class: less important. A new class needs below or above"`
	Above          model.ClassName    `json:"above,omitempty" doc:"stand directly above this class: more important"`
	MaxDown        *model.Amount      `json:"max_down,omitempty" doc:"of a group that has no budget of its own; a percentage is rounded down"`
	MaxDownFloor   *int               `json:"max_down_floor,omitempty" doc:"at least as many may be down"`
	QuotaMemory    *int64             `json:"quota_memory_bytes,omitempty" doc:"0: no limit"`
	QuotaInstances *int               `json:"quota_instances,omitempty" doc:"0: no limit"`
	PreemptEqual   model.PreemptEqual `json:"preempt_equal,omitempty" enum:"off,fair"`
}
