package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
)

const (
	entryBytes    = 256 << 10 // an entry is cut at about this size
	entryCommands = 1000
)

// Plan is what to propose now, and when to decide again even if nothing changes.
type Plan struct {
	Entries []fsm.Entry
	Wake    fsm.Time  // the earliest time at which the answer could change; Never = only after a change
	Refused []Refusal // what can't be done now, in the order in which it was found
	Calm    fsm.Time  // since when a hold's reason is gone; hand it to the next Input
}

// Refusal is one wish that can't be fulfilled now.
type Refusal struct {
	Subject string // "instance/ID", "group/JOB/GROUP", "drain/ID/NODE", "deployment/ID"
	Code    fsm.Code
	Message string
}

// String is the refusal as a line of a log.
func (r Refusal) String() string { return fmt.Sprintf("%s %s: %s", r.Subject, r.Code, r.Message) }

// planner tries commands on a draft and keeps those that were accepted.
type planner struct {
	draft    *fsm.Draft
	paused   bool
	accepted [][]fsm.Command
	wake     fsm.Time
	refused  []Refusal
}

func newPlanner(in Input) planner {
	return planner{draft: in.State.NewDraft(in.Now), paused: in.State.Settings.Paused, wake: fsm.Never}
}

// try adds a group of commands to the plan if the log would accept it. While actuation is paused the group is only shown.
func (p *planner) try(subject string, group ...fsm.Command) *fsm.Error {
	if refusal := p.draft.Try(group...); refusal != nil {
		return refusal
	}
	if p.paused {
		p.refuse(subject, fsm.Refuse(fsm.CodePaused, "actuation is paused; would %s", describe(group)))
		return nil
	}
	p.accepted = append(p.accepted, group)
	return nil
}

// note is try for what is an observation or bookkeeping, which goes on while actuation is paused.
func (p *planner) note(group ...fsm.Command) *fsm.Error {
	refusal := p.draft.Try(group...)
	if refusal == nil {
		p.accepted = append(p.accepted, group)
	}
	return refusal
}

func (p *planner) refuse(subject string, refusal *fsm.Error) {
	p.refused = append(p.refused, Refusal{Subject: subject, Code: refusal.Code, Message: refusal.Message})
}

func (p *planner) wakeAt(t fsm.Time) { p.wake = min(p.wake, t) }

// finish packs the accepted groups into entries.
func (p *planner) finish(in Input, calm fsm.Time) Plan {
	plan := Plan{Wake: p.wake, Refused: p.refused, Calm: calm}
	for rest := p.accepted; len(rest) > 0; {
		n := fit(rest)
		plan.Entries = append(plan.Entries, fsm.Entry{
			Format: in.State.Format, At: in.Now, Term: in.Term, Actor: fsm.ActorLeader, Groups: rest[:n:n],
		})
		rest = rest[n:]
	}
	return plan
}

// fit is how many of the groups go into one entry: at least one.
func fit(groups [][]fsm.Command) int {
	commands, bytes := 0, 0
	for i, group := range groups {
		for _, c := range group {
			commands++
			bytes += roughSize(c)
		}
		if i > 0 && (commands > entryCommands || bytes > entryBytes) {
			return i
		}
	}
	return len(groups)
}

// roughSize is an upper bound of a command's encoded size; only the cut of entries rests on it.
func roughSize(c fsm.Command) int {
	switch c := c.(type) {
	case *fsm.InstancePlace:
		return 128 + len(c.ID) + len(c.Group) + len(c.Node) + len(c.Replaces) + 80*len(c.Ports)
	case *fsm.InstanceStop:
		return 96 + len(c.ID) + len(c.By) + 64*len(c.Facts)
	case *fsm.InstanceMark:
		return 96 + len(c.ID) + len(c.By)
	case *fsm.DrainEnd:
		return 128 + len(c.LastError)
	case *fsm.NodeHealth:
		return 256 + len(c.Reason)
	}
	return 512
}

// describe says in words what a group of commands would do.
func describe(group []fsm.Command) string {
	text := ""
	for i, c := range group {
		if i > 0 {
			text += " and "
		}
		text += describeOne(c)
	}
	return text
}

func describeOne(c fsm.Command) string {
	switch c := c.(type) {
	case *fsm.InstancePlace:
		return fmt.Sprintf("place %s slot %d on node %s", c.Group, c.Slot, c.Node)
	case *fsm.InstanceStop:
		return fmt.Sprintf("stop instance %s (%s)", c.ID, c.Cause)
	case *fsm.InstancePrepare:
		return fmt.Sprintf("prepare the stop of instance %s (%s)", c.ID, c.Cause)
	case *fsm.InstanceRelease:
		return fmt.Sprintf("end the preparation of instance %s", c.ID)
	case *fsm.InstanceKill:
		return fmt.Sprintf("kill instance %s", c.ID)
	case *fsm.InstanceMark:
		if c.Requested {
			return fmt.Sprintf("request the eviction of instance %s", c.ID)
		}
		return fmt.Sprintf("cancel the eviction of instance %s", c.ID)
	case *fsm.InstanceMove:
		return fmt.Sprintf("move instance %s to node %s (%s, gain %d)", c.ID, c.Target, c.Cause, c.Gain)
	case *fsm.DrainTurn:
		return fmt.Sprintf("begin with node %s of drain %s", c.Node, c.ID)
	case *fsm.DeploymentStep:
		return fmt.Sprintf("set deployment %s to %s", c.ID, c.Status)
	case *fsm.JobRevert:
		return fmt.Sprintf("revert job %s to version %d", c.Job, c.Version)
	}
	return fmt.Sprintf("do command %d", c.Kind())
}
