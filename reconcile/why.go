package reconcile

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

const (
	asItShouldBe = "nothing: it is as it should be"
	chainAtMost  = 20 // at most this many events of a chain are shown, the latest ones
	ailingAtMost = 3  // at most this many of a group's instances, nodes or volumes are named
)

// Why explains an object: a job, a group (job/group), a drain, a node (id, name or prefix) or an instance (id or unique
// prefix). Error codes: not_found, ambiguous.
func (e *Explanation) Why(object string) (model.WhyResult, *model.Error) {
	s := &e.p.in.State
	if g, ok := s.Groups.Get(model.GroupID(object)); ok {
		return e.whyOneGroup(g), nil
	}
	all := s.Finder(nil)
	if job, refusal := all.FindJob(object); refusal == nil {
		return e.whyJob(job), nil
	}
	if d, refusal := all.FindDrain(object); refusal == nil {
		return e.whyDrain(d), nil
	}
	node, noNode := all.FindNode(object)
	inst, noInstance := all.FindInstance(object)
	switch {
	case noNode == nil && (node.Name == object || string(node.ID) == object):
		// a complete name must not be read as the prefix of an instance's id
		return e.whyNode(node), nil
	case noInstance == nil && string(inst.ID) == object:
		return e.whyInstance(inst), nil
	case noInstance == nil && noNode == nil, noInstance != nil && noInstance.Code == model.CodeAmbiguous, noNode != nil &&
		noNode.Code == model.CodeAmbiguous:
		return model.WhyResult{}, model.Refuse(model.CodeAmbiguous, "more than one object begins with %q", object).
			WithHint("give more characters of the id")
	case noInstance == nil:
		return e.whyInstance(inst), nil
	case noNode == nil:
		return e.whyNode(node), nil
	}
	if _, _, unknown := s.UnknownOn(model.InstanceID(object)); unknown {
		return model.WhyResult{}, noInstance
	}
	return model.WhyResult{}, model.Refuse(model.CodeNotFound, "there is no job, group, node, drain or instance %q",
		object).WithHint("find ids with: outspan status")
}

func (e *Explanation) whyInstance(inst *fsm.Instance) model.WhyResult {
	state := fmt.Sprintf("desired %s, observed %s%s", inst.Desired, inst.Status.Observed, reported(&inst.Status))
	if inst.Eviction.Requested && !inst.Terminal() {
		state += ", to be evicted (" + string(inst.Eviction.Cause) + ")"
	}
	out := model.WhyResult{Subject: "instance/" + string(inst.ID), State: state,
		Blockers: e.Waiting(inst.ID), Next: e.next(inst)}
	lost := e.lost(&out, inst.Group, func(v *fsm.Volume) bool { return v.Slot == inst.Slot })
	e.chain(&out, append(lost, out.Subject)...)
	if e.p.reasons.slot(slotKey{inst.Group, inst.Slot}) != nil {
		out.Considered = e.considered(inst.Group, inst.Slot)
	}
	return out
}

// whyOneGroup explains a group as whyGroup does. If all is well but some instances still have another version, Next
// describes the rollout.
func (e *Explanation) whyOneGroup(g *fsm.Group) model.WhyResult {
	out := e.whyGroup(g)
	name, _ := g.ID.Split()
	job, ok := e.p.in.State.Jobs.Get(name)
	if !ok || out.Next != asItShouldBe || !e.renewed(g) {
		return out
	}
	out.Next = cmp.Or(e.rollout(job, ""), out.Next)
	return out
}

func (e *Explanation) whyGroup(g *fsm.Group) model.WhyResult {
	out := model.WhyResult{Subject: "group/" + string(g.ID),
		State: fmt.Sprintf("%d of %d ready, %d running", g.Ready, g.Want(), g.Running)}
	ailing := e.ailing(g)
	for _, inst := range ailing[:min(len(ailing), ailingAtMost)] {
		out.State += fmt.Sprintf("; instance %s on node %s is %s%s", inst.ID, e.p.nodeName(inst.Node),
			inst.Status.Observed, reported(&inst.Status))
	}
	out.State += e.avoided(g)
	out.Next = asItShouldBe
	if pending := e.Pending(g.ID); pending != nil {
		out.Next = fmt.Sprintf("waits: %s: %s", pending.Code, pending.Message)
		if pending.Hint != "" {
			out.Next += " (" + pending.Hint + ")"
		}
		if slot, ok := e.unplacedSlot(g); ok {
			out.Considered = e.considered(g.ID, slot)
		}
	} else if g.Ready != g.Want() {
		out.Next = "its instances become ready, or stop"
		if len(ailing) > 0 {
			out.Next += "; what one of them says: outspan logs " + string(ailing[0].ID)
		}
	}
	job, _ := g.ID.Split()
	lost := e.lost(&out, g.ID, func(*fsm.Volume) bool { return true })
	e.chain(&out, append(lost, out.Subject, "job/"+string(job))...)
	for inst := range e.p.in.State.InstancesOf(g.ID) {
		out.Blockers = append(out.Blockers, e.Waiting(inst.ID)...)
	}
	return out
}

// reported returns what an agent reported of an instance beside its state, such as " (crash_loop, last exit code
// 7, restarts: 3)", or "" if there is nothing.
func reported(s *model.InstanceStatus) string {
	var parts []string
	if s.Reason != "" {
		parts = append(parts, s.Reason)
	}
	if s.ExitCode != nil {
		parts = append(parts, fmt.Sprintf("last exit code %d", *s.ExitCode))
	}
	if s.Restarts > 0 {
		parts = append(parts, fmt.Sprintf("restarts: %d", s.Restarts))
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

// avoider names what avoids a node: a group, or one version of it.
func avoider(a fsm.AvoidEntry) string {
	if a.Version == 0 {
		return string(a.Group)
	}
	return fmt.Sprintf("version %d of %s", a.Version, a.Group)
}

// avoided names the eligible nodes that the group avoids, at most ailingAtMost of them, with the remaining time and the
// reason. It returns "" if there are none.
func (e *Explanation) avoided(g *fsm.Group) string {
	var nodes []string
	for _, n := range e.p.in.State.Nodes.All() {
		a, avoided := n.Avoids(g.ID, g.Version, e.p.in.Now)
		if avoided && e.p.in.State.Eligible(n) == nil {
			nodes = append(nodes, fmt.Sprintf("%s for %s more (%s)", n.Name, a.Until.Left(e.p.in.Now), a.Reason))
		}
	}
	if len(nodes) == 0 {
		return ""
	}
	text := "; it avoids " + strings.Join(nodes[:min(len(nodes), ailingAtMost)], ", ")
	if more := len(nodes) - ailingAtMost; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// lost finds the volumes of a group whose data was given up and for which concerned returns true. It names the first of
// them in out.State, and returns the event subjects of all.
func (e *Explanation) lost(out *model.WhyResult, group model.GroupID,
	concerned func(*fsm.Volume) bool) (subjects []string) {
	for id, v := range e.p.in.State.Volumes.From(model.VolumeID(group + "/")) {
		if v.Group != group {
			break
		}
		if v.Lost == nil || !concerned(v) {
			continue
		}
		subjects = append(subjects, "volume/"+string(id))
		if len(subjects) <= ailingAtMost {
			out.State += fmt.Sprintf("; the data of volume %s was given up by %s with node %s", id, v.Lost.Actor, v.Lost.Node)
		}
	}
	return subjects
}

// ailing lists the instances of a group that should run, are not ready, and have reported a reason.
func (e *Explanation) ailing(g *fsm.Group) (all []*fsm.Instance) {
	for inst := range e.p.in.State.InstancesOf(g.ID) {
		if inst.Desired == model.DesiredRunning && !inst.Ready() && inst.Status.Reason != "" {
			all = append(all, inst)
		}
	}
	return all
}

func (e *Explanation) whyJob(job *fsm.Job) model.WhyResult {
	out := model.WhyResult{Subject: "job/" + string(job.Name), State: fmt.Sprintf("version %d", job.Version)}
	if job.Stopped {
		out.State += ", stopped"
	}
	next := ""
	for id, g := range e.p.in.State.GroupsOf(job.Name) {
		one := e.whyGroup(g)
		out.State += fmt.Sprintf("; %s: %s", id, one.State)
		out.Blockers = append(out.Blockers, one.Blockers...)
		if next == "" && one.Next != asItShouldBe {
			next, out.Considered = fmt.Sprintf("%s %s", id, one.Next), one.Considered
		}
	}
	subjects := []string{out.Subject}
	if d, ok := e.p.in.State.Deployments.Get(job.Deployment); ok {
		subjects = append(subjects, "deployment/"+string(d.ID))
		out.State += fmt.Sprintf("; deployment %s %s", d.ID, d.Status)
		if d.Reason != "" {
			out.State += ": " + d.Reason
		}
	}
	out.Next = cmp.Or(e.rollout(job, next), next, "nothing: no group waits for anything")
	e.chain(&out, subjects...)
	return out
}

func (e *Explanation) whyDrain(d *fsm.Drain) model.WhyResult {
	out := model.WhyResult{Subject: "drain/" + string(d.ID), State: string(d.Phase()), Next: "nothing: it has ended"}
	for _, status := range e.Drain(d) {
		out.Blockers = append(out.Blockers, status.Blockers...)
	}
	switch {
	case d.Phase() != model.PhaseDraining:
	case d.Paused:
		out.Next = "waits: the drain is paused (outspan drain resume " + string(d.ID) + ")"
	case len(out.Blockers) > 0:
		out.Next = waitText(out.Blockers[0])
	default:
		out.Next = "its instances are moved"
	}
	e.chain(&out, out.Subject)
	return out
}

// chain adds to out the latest events about the subjects, and the time of the last one.
func (e *Explanation) chain(out *model.WhyResult, subjects ...string) {
	about := func(_ model.EventType, subject string) bool { return slices.Contains(subjects, subject) }
	for _, event := range e.p.in.State.Events.Find(0, about) {
		out.Chain = append(out.Chain, model.WhyLink{Index: event.Key.Index(), Wall: event.Wall, Cause: event.Cause,
			Actor: event.Actor, Text: eventText(event)})
		out.Since = event.Wall
	}
	if over := len(out.Chain) - chainAtMost; over > 0 {
		out.Chain = out.Chain[over:]
	}
}

func eventText(event *fsm.Event) string {
	text := string(event.Type)
	switch {
	case event.Data["paused"] != "":
		text += ": " + map[string]string{"true": "paused", "false": "resumed"}[event.Data["paused"]]
	case event.Before != "" && event.After != "":
		text += ": " + event.Before + " -> " + event.After
	case event.After != "":
		text += ": " + event.After
	}
	var parts []string
	for _, key := range [...]string{"node", "replaces", "instances", "reason", "message", "text", "rate"} {
		if v := event.Data[key]; v != "" && !(key == "reason" && v == event.Data["by"]) {
			parts = append(parts, key+" "+v)
		}
	}
	if by := event.Data["by"]; by != "" && event.Cause == model.CausePreempted {
		parts = append(parts, "instance "+by+" takes its room")
	}
	if len(parts) > 0 {
		text += " (" + strings.Join(parts, ", ") + ")"
	}
	return text
}

// unplacedSlot returns the first slot of a group whose next instance can't be placed. It returns false if there is
// none.
func (e *Explanation) unplacedSlot(g *fsm.Group) (int, bool) {
	for n := range max(g.Count, e.p.in.State.Nodes.Len()) {
		if e.p.reasons.slot(slotKey{g.ID, n}) != nil {
			return n, true
		}
	}
	return 0, false
}

// considered returns, for every node, how placement judges it for the next instance of a slot. It returns nil if the
// decision did not look at the group.
func (e *Explanation) considered(id model.GroupID, slot int) []model.Considered {
	for _, g := range e.p.groups {
		if g.id != id {
			continue
		}
		g.fields = nil // score the nodes again, because instances were placed after the last scoring
		if f := e.p.fieldOf(g, g.row.Version); f != nil {
			return e.apart(g, slot, f.all(e.p.homeOf(g, slot)))
		}
	}
	return nil
}

// all lists every node with its score, or with the rule that excludes it. If home is not empty, all other nodes are
// excluded.
func (f *field) all(home model.NodeID) []model.Considered {
	scores := map[model.NodeID]int64{}
	for i := range f.domains {
		d := &f.domains[i]
		for len(d.rest) > 0 {
			f.pull(d)
		}
		for _, c := range d.heap {
			scores[f.views[c.at].node.ID] = c.score - d.used*sameValue
		}
	}
	var out []model.Considered
	for _, v := range f.pass.candidates().views {
		c := model.Considered{Node: v.node.ID, ExcludedBy: f.exclude(v)}
		switch {
		case home != "" && v.node.ID != home:
			c.ExcludedBy = model.CodeVolumeNoNode
		case c.ExcludedBy == "" && f.repeats(v.node, nil):
			c.ExcludedBy = model.CodeAntiAffinity
		}
		if c.ExcludedBy == "" {
			c.Score = scores[v.node.ID]
		}
		out = append(out, c)
	}
	return out
}
