package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// followDrain shows the progress of a drain until the drain has ended. It returns an error unless the drain succeeded.
func (a *app) followDrain(ctx context.Context, id string, until *waitFlags) error {
	p := term.NewProgress(&a.Console)
	defer p.End()
	_, err := a.watchDrainWith(ctx, id, until, p.Line, func(d api.Drain) { a.drainBar(p, d) })
	return err
}

// watchDrain is like followDrain, but passes each line to the function say and shows no progress bar. It returns the
// drain as last read, or nil if no read succeeded.
func (a *app) watchDrain(ctx context.Context, id string, until *waitFlags,
	say func(string, ...any)) (*api.Drain, error) {
	return a.watchDrainWith(ctx, id, until, say, func(api.Drain) {})
}

func (a *app) watchDrainWith(ctx context.Context, id string, until *waitFlags, say func(string, ...any),
	bar func(api.Drain)) (*api.Drain, error) {
	limited, cancel := until.limit(ctx, "drain "+id)
	defer cancel()
	var last *api.Drain
	err := watch(limited, a, of(a.client().Drains.Get, id), func(got client.Response[api.Drain]) (bool, error) {
		d := got.Value
		for _, line := range drainNews(last, &d) {
			say("%s", line)
		}
		last = &d
		if d.Phase == model.PhaseDraining {
			bar(d)
			return false, nil
		}
		return true, drainEnded(d)
	})
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		a.Note("\nstopped following; drain %s goes on", id)
		a.Note("  follow it again: outspan drain watch %s", id)
		a.Note("  cancel it:       outspan drain cancel %s", id)
	}
	return last, err
}

func (a *app) drainBar(p *term.Progress, d api.Drain) {
	var parts []string
	for _, n := range d.Nodes {
		if n.Phase == model.PhaseDraining && n.Turn {
			parts = append(parts, n.Node+" "+countOf(n)+timeLeft(a.Now(), n.Deadline))
		}
	}
	p.Now("draining: %s", strings.Join(parts, "; "))
}

// countOf describes the progress of one node. Each instance counts once: it is gone, it stops, or it is left.
func countOf(n api.DrainNode) string {
	out, stopping := gone(n)
	text := fmt.Sprintf("%s, %d left", out, len(n.Remaining)-stopping)
	if stopping > 0 {
		text += fmt.Sprintf(", %d stopping", stopping)
	}
	return text
}

// String describes how many instances were replaced, and how many were only stopped.
func (d departed) String() string {
	if d.stopped == 0 {
		return fmt.Sprintf("%d moved", d.moved)
	}
	return fmt.Sprintf("%d moved, %d stopped without a replacement", d.moved, d.stopped)
}

// ackedText describes how many instances stay on their node with an acknowledgement. It returns "" for 0.
func ackedText(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return ", 1 stays as was acknowledged"
	}
	return fmt.Sprintf(", %d stay as was acknowledged", n)
}

func timeLeft(now time.Time, deadline *time.Time) string {
	if deadline == nil {
		return ""
	}
	return ", deadline in " + term.Span(deadline.Sub(now))
}

// drainNews returns lines about what changed between two reads of a drain. before is nil for the first read.
func drainNews(before, after *api.Drain) []string {
	var news []string
	if before == nil {
		before = &api.Drain{Nodes: make([]api.DrainNode, len(after.Nodes))}
	}
	if before.Paused != after.Paused {
		news = append(news, map[bool]string{true: "paused", false: "goes on"}[after.Paused])
	}
	for i, n := range after.Nodes {
		if i < len(before.Nodes) {
			news = append(news, drainNodeNews(before.Nodes[i], n)...)
		}
	}
	if before.Phase != after.Phase && after.Phase != model.PhaseDraining {
		news = append(news, fmt.Sprintf("drain %s %s: %s%s", after.ID, after.Phase, goneOf(*after), ackedText(acked(*after))))
	}
	return news
}

func drainNodeNews(before, after api.DrainNode) []string {
	var news []string
	add := func(format string, args ...any) {
		news = append(news, after.Node+": "+fmt.Sprintf(format, args...))
	}
	out, _ := gone(after)
	was, _ := gone(before)
	if !before.Turn && after.Turn && after.Phase == model.PhaseDraining {
		deadline := "no deadline"
		if after.Deadline != nil {
			deadline = "deadline " + after.Deadline.Local().Format("15:04:05")
		}
		add("draining, %d instances, %s", len(after.Remaining)+out.moved+out.stopped, deadline)
	}
	left := after.Phase == model.PhaseDraining && out != was // one that has ended does not tell what remains
	if after.Moved > before.Moved || after.Stopped != before.Stopped || left {
		add("%s", countOf(after))
	}
	for _, sum := range newReasons(before.Blockers, after.Blockers) {
		add("blocked: %s", sumText(sum))
	}
	if before.Phase != after.Phase && after.Phase != model.PhaseDraining {
		text := string(after.Phase)
		if after.StartedAt != nil && after.EndedAt != nil {
			text += " after " + term.Span(after.EndedAt.Sub(*after.StartedAt))
		}
		var kept []model.BlockerSum // from the previous read: an ended part of a drain has no blockers
		if after.Phase == model.PhaseFailed {
			kept = sumsOf(before.Blockers)
		}
		if after.LastError != "" && len(kept) == 0 {
			text += ": " + after.LastError
		}
		add("%s", text)
		for _, sum := range kept {
			add("  blocked by %s", sumText(sum))
		}
	}
	return news
}
