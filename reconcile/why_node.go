package reconcile

import (
	"fmt"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

func (e *Explanation) whyNode(n *fsm.Node) model.WhyResult {
	out := model.WhyResult{Subject: "node/" + string(n.ID), State: string(n.State()),
		Next: "instances may be placed on it"}
	if refusal := e.p.in.State.Eligible(n); refusal != nil {
		out.Next = "nothing is placed on it: " + refusal.Message
	}
	subjects := []string{out.Subject}
	if d, part, ok := e.p.in.State.EndedDrain(n); ok {
		subjects = append(subjects, "drain/"+string(d.ID))
		e.afterDrain(&out, n, d, part)
	}
	for _, a := range n.Avoiding(e.p.in.Now) {
		out.State += fmt.Sprintf("; %s avoids it for %s more: %s", avoider(a), a.Until.Left(e.p.in.Now), a.Reason)
	}
	for _, f := range n.PullsPaused(e.p.in.Now) {
		out.State += fmt.Sprintf("; it could not pull the image of %s, and tries again in %s: %s", f.Group,
			f.Until.Sub(e.p.in.Now), f.Words)
	}
	if live, ok := e.p.in.Live[n.ID]; ok && live.SeenBy != "" {
		out.State += fmt.Sprintf("; the leader can't hear it, server %s can", live.SeenBy)
	}
	if d, ok := e.p.in.State.RunningDrain(n); ok {
		subjects = append(subjects, "drain/"+string(d.ID))
		for _, status := range e.Drain(d) {
			if status.Node == n.ID {
				out.Blockers = status.Blockers
			}
		}
	}
	who := model.Subject{Kind: model.SubjectAgent, Name: n.Name}
	if m, ok := e.p.in.State.TrustMemberOf(who); ok && m.RevokedIndex != 0 {
		subjects = append(subjects, "member/"+who.String())
		out.State += "; its certificates were revoked"
		if m.Reason != "" {
			out.State += ": " + m.Reason
		}
		out.Next = "to let it return: outspan token create --role agent, then outspan join on that machine; if it stays " +
			"away: outspan node forget " + n.Name
	}
	e.chain(&out, subjects...)
	return out
}

// afterDrain adds to out how the last drain of a node ended, and what an operator can do next. The node stays draining
// until an operator uncordons it.
func (e *Explanation) afterDrain(out *model.WhyResult, n *fsm.Node, d *fsm.Drain, part fsm.DrainNode) {
	uncordon, left := "outspan node uncordon "+n.Name, e.left(n)
	switch part.Phase {
	case model.PhaseDrained:
		out.State += fmt.Sprintf("; drain %s has drained it", d.ID)
		out.Next = left + ": work on it, then: " + uncordon
	case model.PhaseFailed:
		out.State += fmt.Sprintf("; drain %s failed: %s", d.ID, part.LastError)
		out.Next = left + ", and nothing is placed on it: remove what blocked, then: outspan node drain " + n.Name +
			", or to take it back: " + uncordon
	case model.PhaseCanceled:
		out.State += fmt.Sprintf("; drain %s was %s", d.ID, part.LastError) // here LastError is "canceled by" and the actor
		out.Next = left + ", and nothing is placed on it; to take it back: " + uncordon
	}
}

// left describes what is still on a node after its drain.
func (e *Explanation) left(n *fsm.Node) string {
	if n.Placed.Instances == 0 {
		return "it is empty"
	}
	text := fmt.Sprintf("%d instances are still there", n.Placed.Instances)
	if n.Placed.Instances == 1 {
		text = "1 instance is still there"
	}
	if acked := e.p.in.State.Acknowledged(n); acked > 0 {
		text += fmt.Sprintf(" (%d as was acknowledged)", acked)
	}
	return text
}
