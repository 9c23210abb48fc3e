package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
)

// wouldStop are instances of one group; some of them would stop by a dry run.
type wouldStop struct {
	Group     model.GroupID      `json:"group"`
	Stop      int                `json:"stop"` // how many of the instances; which ones is decided when they stop
	Instances []model.InstanceID `json:"instances"`
	nodes     []string
}

// text names the instances and nodes if all of them stop; of a part only the number is certain.
func (w *wouldStop) text() string {
	of := len(w.Instances)
	if w.Stop < of {
		return fmt.Sprintf("%s: %d of its %d instances would stop", w.Group, w.Stop, of)
	}
	names := make([]string, of)
	for i, id := range w.Instances {
		names[i] = string(id) + " on " + w.nodes[i]
	}
	if more := of - listedAtMost; more > 0 {
		names = append(names[:listedAtMost], fmt.Sprintf("%d more", more))
	}
	return fmt.Sprintf("%s: all of its %d instances would stop: %s", w.Group, of, strings.Join(names, ", "))
}

// stopsOf lists what would stop of a job by group; group "" is all groups. keep is how many instances of a group stay.
// What stops already is not counted, and, unless none stays, neither is an instance whose replacement is there: it
// stops without this change.
func (a *app) stopsOf(ctx context.Context, job, group string, keep int) ([]wouldStop, error) {
	running, err := a.client().Instances.List(ctx, client.InstanceListOptions{
		ListOptions: client.ListOptions{Filter: []string{"desired=running"}}, Job: job, Group: group,
	})
	if err != nil {
		return nil, err
	}
	all := []wouldStop{}
	there := map[model.InstanceID]bool{}
	for _, i := range running.Items {
		there[i.ID] = true
	}
	for _, i := range sorted(running, bySlot).Items {
		if keep > 0 && there[i.ReplacedBy] {
			continue
		}
		id := model.NewGroupID(i.Job, i.Group)
		at := slices.IndexFunc(all, func(w wouldStop) bool { return w.Group == id })
		if at < 0 {
			at, all = len(all), append(all, wouldStop{Group: id})
		}
		w := &all[at]
		w.Instances, w.nodes = append(w.Instances, i.ID), append(w.nodes, i.Node)
		w.Stop = max(0, len(w.Instances)-keep)
	}
	return slices.DeleteFunc(all, func(w wouldStop) bool { return w.Stop == 0 }), nil
}

// stoppedReply is what a dry run of a stop, or of a scale that makes a group smaller, prints as JSON.
type stoppedReply struct {
	api.JobReply
	Stops []wouldStop `json:"stops"`
}

// showStops prints a dry run with what would stop.
func (a *app) showStops(r api.JobReply, done string, stops []wouldStop, write *writeFlags) error {
	name := ""
	if r.Job != nil {
		name = jobName(*r.Job)
	}
	s, err := shownValue(stoppedReply{r, stops}, []string{name}, func(p *page) {
		p.jobReply(&r, done, write)
		for _, w := range stops {
			p.line("  %s", w.text())
		}
	})
	if err != nil {
		return err
	}
	return a.show(s)
}

// checkNodes refuses nodes that are not there before anything begins: a mistyped name must not leave the others to be
// drained. One name alone is left to the servers. Code: not_found.
func (a *app) checkNodes(ctx context.Context, nodes []string) error {
	if len(nodes) < 2 {
		return nil
	}
	known, err := a.client().Nodes.List(ctx, client.ListOptions{Fields: []string{"id", "name"}})
	if err != nil {
		return err
	}
	unknown := slices.DeleteFunc(slices.Clone(nodes), func(name string) bool {
		return slices.ContainsFunc(known.Items, func(n api.Node) bool { return n.Name == name || string(n.ID) == name })
	})
	if len(unknown) == 0 {
		return nil
	}
	return model.Refuse(model.CodeNotFound, "there is no node %s; nothing was begun", strings.Join(unknown, ", ")).
		WithHint("list them with: outspan node ls")
}
