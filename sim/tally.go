package sim

import (
	"fmt"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// count counts what an entry did, so that a test can check that every kind of behaviour was reached.
func (j *judge) count(c *committed) {
	if c.entry.Term != 0 && c.entry.Term != c.term {
		j.counts[CountStaleTerm]++
	}
	for i, r := range c.results {
		if r.Refusal != nil {
			j.countRefusal(c, c.entry.Groups[i], r.Refusal)
		}
	}
	c.taken(func(_ []fsm.Command, command fsm.Command) { j.countCommand(c, command) })
	if c.before.Hold.Active != c.after.Hold.Active && c.after.Hold.Active {
		j.counts[CountHolds]++
	}
	j.counts[CountMinutes] = int(c.after.Now / model.Time(model.Minute))
	for id, now := range c.after.Instances.All() {
		if was, ok := c.before.Instances.Get(id); ok && was != now {
			j.countChange(was, now)
		}
	}
}

func (j *judge) countRefusal(c *committed, group []fsm.Command, refusal *model.Error) {
	j.countCode(refusal)
	if _, report := group[0].(*fsm.NodeReport); report && refusal.Code == model.CodeStale && c.entry.Term == 0 {
		j.counts[CountStaleReports]++
	}
}

func (j *judge) countCode(refusal *model.Error) {
	switch code := refusal.Code; {
	case code == model.CodeBudgetMinReady:
		j.counts[CountBudgetRefused]++
	case code == model.CodeBudgetRate, code == model.CodeActorRate:
		j.counts[CountRateRefused]++
	case code == model.CodeLastCopy, code == model.CodeLastHealthy:
		j.counts[CountLastCopies]++
	case code == model.CodeRoleNever, code == model.CodeVolumeLocal, code == model.CodeIsLeader,
		code == model.CodeNotDrained, strings.HasPrefix(string(code), "gate:"):
		j.counts[CountRoleRefused]++
	case strings.HasPrefix(string(code), "quota_exceeded"), strings.Contains(string(code), ":quota_exceeded"):
		j.counts[CountQuotaRefused]++
	}
}

func (j *judge) countCommand(c *committed, command fsm.Command) {
	switch one := command.(type) {
	case *fsm.InstancePlace:
		j.counts[CountPlacements]++
	case *fsm.InstanceStop:
		j.countStop(one)
	case *fsm.InstanceKill:
		j.counts[CountKills]++
	case *fsm.InstanceRelease:
		if one.Failure != "" {
			j.counts[CountAborted]++
		}
	case *fsm.InstanceMark:
		if one.Requested {
			j.counts[CountEvictions]++
		}
	case *fsm.InstanceMove:
		j.counts[CountMoves]++
	case *fsm.DrainStart:
		j.counts[CountDrains]++
	case *fsm.DrainEnd:
		if one.Phase == model.PhaseDrained {
			j.counts[CountDrained]++
		} else {
			j.counts[CountDrainFailed]++
		}
	case *fsm.DrainCancel:
		j.counts[CountDrainCanceled]++
	case *fsm.DeploymentStep:
		j.countDeployment(one)
	case *fsm.JobRevert:
		if c.entry.Term != 0 {
			j.counts[CountReverted]++
		}
	case *fsm.NodeHealth:
		j.countHealth(one)
	case *fsm.NodeRegister:
		if was, ok := c.before.Nodes.Get(one.ID); ok && was.Health == model.HealthOffline {
			j.counts[CountReturned]++
		} else if !ok && strings.HasSuffix(string(one.ID), "r") {
			j.counts[CountReused]++
		}
	}
}

func (j *judge) countHealth(c *fsm.NodeHealth) {
	switch c.Health {
	case model.HealthOffline:
		j.counts[CountOffline]++
	case model.HealthDegraded:
		j.counts[CountDegraded]++
	}
}

func (j *judge) countDeployment(c *fsm.DeploymentStep) {
	switch c.Status {
	case model.DeploymentSucceeded:
		j.counts[CountSucceeded]++
	case model.DeploymentFailed:
		j.counts[CountDeployFailed]++
	}
}

func (j *judge) countStop(c *fsm.InstanceStop) {
	j.counts[CountStops]++
	if c.Bypass {
		j.counts[CountBypassed]++
	}
	switch {
	case c.By == fsm.ByPolicy:
		j.counts[CountPolicyStops]++
	case c.Cause == model.CauseNodeDraining:
		j.counts[CountDrainStops]++
	case c.Cause == model.CauseUser:
		j.counts[CountUserStops]++
	case c.Cause == model.CauseRollout:
		j.counts[CountRolloutStops]++
	case c.Cause == model.CauseScaleDown:
		j.counts[CountScaleStops]++
	case c.Cause == model.CauseDrainTimeout:
		j.counts[CountForced]++
	case c.Cause.IsMove():
		j.counts[CountMovesDone]++
	}
}

func (j *judge) countChange(was, now *fsm.Instance) {
	switch {
	case was.Status.Observed == now.Status.Observed:
	case now.Status.Observed == model.ObservedLost:
		j.counts[CountLost]++
	case now.Status.Observed == model.ObservedFailed && now.Status.Reason == "gone_from_node":
		j.counts[CountGoneFromNode]++
	}
}

func describeCommand(c fsm.Command) string {
	name := fsm.KindName(c.Kind())
	switch one := c.(type) {
	case *fsm.InstancePlace:
		return fmt.Sprintf("%s %s %s/%d v%d on %s replaces %q (%s) awaits %v", name, one.ID, one.Group, one.Slot, one.Version,
			one.Node, one.Replaces, one.Cause, one.Awaits)
	case *fsm.JobSubmit:
		text := fmt.Sprintf("%s %s class %s:", name, one.Spec.Name, one.Spec.Class)
		for _, g := range one.Spec.Groups {
			text += fmt.Sprintf(" %s x%d %s %d MiB", g.Name, g.Count, g.Exec.Command, g.Resources.MemoryBytes/mib)
		}
		return text
	case *fsm.NodeReport:
		text := fmt.Sprintf("%s %s epoch %d full %v facts %d:", name, one.ID, one.Epoch, one.Full, one.FactsGen)
		for _, s := range one.Instances {
			text += fmt.Sprintf(" [%s %s %s gen %d %v]", s.ID, s.Observed, s.Reason, s.Generation, s.Facts)
		}
		return text
	case *fsm.NodeRegister:
		return fmt.Sprintf("%s %s %s boot %s", name, one.ID, one.Name, one.Agent.BootID)
	}
	return fmt.Sprintf("%s %+v", name, c)
}
