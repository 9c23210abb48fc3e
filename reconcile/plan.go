package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

const (
	entryBytes    = 256 << 10 // an entry is cut at this size; a single group may have more
	entryCommands = 1000
)

// Plan is what to propose now, and when to decide again even if nothing changes.
type Plan struct {
	Entries []fsm.Entry
	Wake    model.Time // the earliest time at which the answer could change; Never = only after a change
	Refused []Refusal  // what can't be done now, in the order in which it was found
	Skipped []Skip     // what no entry can hold
}

// Refusal is one wish that can't be fulfilled now.
type Refusal struct {
	// Subject is "instance/ID", "group/JOB/GROUP", "group/JOB/GROUP/SLOT", or with "/FIRST-LAST" several slots,
	// "drain/ID/NODE", or "deployment/ID".
	Subject string
	Code    model.Code
	Message string
}

// Skip is a group of commands that can't be written to the log, whatever the state. Everything else goes on without it.
type Skip struct {
	Group []fsm.Command
	Why   *model.Error
}

// String says what is left out and why.
func (s Skip) String() string { return fmt.Sprintf("%s: %s", describe(s.Group), s.Why) }

// String is the refusal as a line of a log.
func (r Refusal) String() string { return fmt.Sprintf("%s %s: %s", r.Subject, r.Code, r.Message) }

// planner tries commands on a draft and keeps those that were accepted.
type planner struct {
	draft    *fsm.Draft
	paused   bool
	noted    *fsm.Draft // while actuation is paused: the state with nothing but what is really proposed
	accepted [][]fsm.Command
	sizes    []int // of those accepted, in bytes
	wake     model.Time
	changes  model.Time // wake without the retries of stops that were refused: when something is known to come about
	rated    model.Time // the earliest time at which a rate allows a stop that it refuses now; Never: it refuses none
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

// try adds a group of commands to the plan if the log would accept it. While actuation is paused the group is only
// shown.
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

// note is try for what is an observation or bookkeeping, which goes on while actuation is paused.
func (p *planner) note(group ...fsm.Command) *model.Error {
	size, refusal := p.draw(group)
	if refusal == nil && p.paused {
		refusal = p.noted.Try(group...) // it must not rest on what is only shown
	}
	if refusal == nil {
		p.accept(size, group)
	}
	return refusal
}

// draw applies a group to the draft and returns its size. What no entry can hold is left out of the draft as well: the
// rest of the plan must not rest on it.
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

// retryAt asks to be woken for one more try of a stop that was refused.
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

// fit is how many of the groups go into one entry: at least one.
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
