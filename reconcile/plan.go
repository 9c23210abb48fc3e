package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

const (
	entryBytes    = 256 << 10 // upper bound of an entry's size in bytes; a single group may be larger
	entryCommands = 1000
)

// Plan is what to propose now, and when to decide again although nothing has changed.
type Plan struct {
	Entries []fsm.Entry
	Wake    model.Time // earliest time at which the plan could change without a change of the state; Never if it can't
	Refused []Refusal  // actions that should happen now but can't, in the order found
	Skipped []Skip     // groups of commands that can't be written to the log
}

// Refusal is one action that should happen now but can't.
type Refusal struct {
	// Subject is "instance/ID", "node/ID", "group/JOB/GROUP", "group/JOB/GROUP/SLOT", several slots as
	// "group/JOB/GROUP/FIRST-LAST", "drain/ID/NODE", "deployment/ID", "volume/ID", or "liveness".
	Subject string
	Code    model.Code
	Message string
}

// Skip is a group of commands that can't be written to the log, whatever the state. Nothing in the plan depends on it.
type Skip struct {
	Group []fsm.Command
	Why   *model.Error
}

// String returns the skipped commands and the reason.
func (s Skip) String() string { return fmt.Sprintf("%s: %s", describe(s.Group), s.Why) }

// String returns the refusal as one line for a log.
func (r Refusal) String() string { return fmt.Sprintf("%s %s: %s", r.Subject, r.Code, r.Message) }

// planner tries commands on a draft and keeps those that were accepted.
type planner struct {
	draft    *fsm.Draft
	paused   bool
	noted    *fsm.Draft // while actuation is paused: a second draft, with only the commands that are really proposed
	accepted [][]fsm.Command
	sizes    []int // size of each accepted group in bytes
	wake     model.Time
	changes  model.Time // like wake, but without retries of refused stops
	rated    model.Time // earliest time at which a rate allows a stop that it refuses now; Never if no rate refuses a stop
	refused  []Refusal
	skipped  []Skip
}

func newPlanner(in Input) planner {
	p := planner{draft: in.State.NewDraft(in.Now), paused: in.State.Settings.Paused, wake: model.Never,
		changes: model.Never, rated: model.Never}
	if p.paused {
		p.noted = in.State.NewDraft(in.Now)
	}
	return p
}

// try adds a group of commands to the plan if the draft accepts it; otherwise it returns the refusal. While actuation
// is paused, an accepted group is not planned but listed as refused, and try still returns nil.
func (p *planner) try(subject string, group ...fsm.Command) *model.Error {
	size, refusal := p.draw(group)
	switch {
	case refusal != nil:
		return refusal
	case p.paused:
		p.refuse(subject, model.Refuse(model.CodePaused, "actuation is paused; would %s", describe(group)))
		return nil
	}
	p.accept(size, group)
	return nil
}

// note adds a group of observations or bookkeeping to the plan if the draft accepts it; otherwise it returns the
// refusal. Such groups are planned even while actuation is paused.
func (p *planner) note(group ...fsm.Command) *model.Error {
	size, refusal := p.draw(group)
	if refusal == nil && p.paused {
		refusal = p.noted.Try(group...) // the group must not depend on commands that the pause holds back
	}
	if refusal == nil {
		p.accept(size, group)
	}
	return refusal
}

// draw applies a group to the draft and returns its size in bytes. A group that can't be written to the log is recorded
// as skipped and not applied, so that no later group depends on it.
func (p *planner) draw(group []fsm.Command) (size int, refusal *model.Error) {
	if size, refusal = fsm.GroupSize(group); refusal != nil {
		p.skipped = append(p.skipped, Skip{Group: group, Why: refusal})
		return 0, refusal
	}
	if plant.Is(plant.GuessedSize) {
		size = 512 * len(group)
	}
	return size, p.draft.Try(group...)
}

func (p *planner) accept(size int, group []fsm.Command) {
	p.accepted, p.sizes = append(p.accepted, group), append(p.sizes, size)
}

func (p *planner) refuse(subject string, refusal *model.Error) {
	p.refused = append(p.refused, Refusal{Subject: subject, Code: refusal.Code, Message: refusal.Message})
}

func (p *planner) wakeAt(t model.Time) {
	p.wake, p.changes = min(p.wake, t), min(p.changes, t)
}

// retryAt plans a decision at t, to try a refused stop again. Unlike wakeAt, it does not lower p.changes, because
// nothing is known to change at t.
func (p *planner) retryAt(t model.Time) { p.wake = min(p.wake, t) }

// finish packs the accepted groups into entries.
func (p *planner) finish(in Input) Plan {
	plan := Plan{Wake: p.wake, Refused: p.refused, Skipped: p.skipped}
	for rest, sizes := p.accepted, p.sizes; len(rest) > 0; {
		n := fit(rest, sizes)
		plan.Entries = append(plan.Entries, fsm.Entry{
			Format: in.State.Format, At: in.Now, Term: in.Term, Actor: model.ActorLeader, Groups: rest[:n:n],
		})
		rest, sizes = rest[n:], sizes[n:]
	}
	return plan
}

// fit returns how many of the first groups fit into one entry, at least one.
func fit(groups [][]fsm.Command, sizes []int) int {
	commands, bytes := 0, 0
	for i, group := range groups {
		commands += len(group)
		bytes += sizes[i]
		if i > 0 && (commands > entryCommands || bytes > entryBytes) {
			return i
		}
	}
	return len(groups)
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
	case *fsm.ImageWant:
		return fmt.Sprintf("pull the image of %s slot %d on node %s", c.Group, c.Slot, c.Node)
	case *fsm.ImageDrop:
		return fmt.Sprintf("give up the image of %s slot %d", c.Group, c.Slot)
	case *fsm.InstanceStop:
		return fmt.Sprintf("stop instance %s (%s)", c.ID, c.Cause)
	case *fsm.InstancePrepare:
		return fmt.Sprintf("prepare the stop of instance %s (%s)", c.ID, c.Cause)
	case *fsm.InstanceRelease:
		return fmt.Sprintf("end the preparation of instance %s", c.ID)
	case *fsm.InstanceKill:
		return fmt.Sprintf("kill instance %s", c.ID)
	case *fsm.InstanceFenced:
		return fmt.Sprintf("take instance %s for stopped: its lease is over", c.ID)
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
