// Package lanes tells when what happened to each instance that a drain concerns: the times that the web page draws side
// by side. They come from the rows of the instances and from the kept events, so a time whose event is no longer kept
// is missing.
package lanes

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Most is how many lanes Of returns at most.
const Most = 1000

// drawing collects the lanes of one drain.
type drawing struct {
	state *fsm.State
	parts map[model.NodeID]*part
	lanes map[model.InstanceID]*api.DrainLane // by the instance that is to leave
	heirs map[model.InstanceID]*heir          // by each instance that they replaced
	named map[model.InstanceID]*heir          // by their own ids
}

// heir is an instance that replaces another one, and how far it is.
type heir struct {
	id                       model.InstanceID
	node                     model.NodeID
	reserved, started, ready *time.Time
}

// part is one node of the drain.
type part struct {
	fsm.DrainNode
	turn int // its place in the drain
}

// Of returns the lanes of a drain, at most Most: those of the instances that were on its nodes when the turn of the
// node began, or came there during it. They are in the order of the nodes, and then of the groups and slots. Node and
// Target are the names of nodes. Of does not block; it looks at each event since the drain began.
func Of(s *fsm.State, d *fsm.Drain, wall time.Time) []api.DrainLane {
	w := &drawing{state: s, parts: map[model.NodeID]*part{}, lanes: map[model.InstanceID]*api.DrainLane{},
		heirs: map[model.InstanceID]*heir{}, named: map[model.InstanceID]*heir{}}
	for turn, n := range d.Nodes {
		w.parts[n.Node] = &part{DrainNode: n, turn: turn}
		w.rowsOn(n)
	}
	wanted := func(t model.EventType, _ string) bool {
		return t == model.EventAllocated || t == model.EventDesired || t == model.EventStatus
	}
	for _, e := range s.Events.Find(fsm.NewEventKey(d.Index, 0), wanted) {
		w.event(e)
	}
	for id, lane := range w.lanes {
		if h := w.heirs[id]; h != nil {
			lane.Replacement, lane.Target = h.id, w.name(h.node)
			lane.ReservedAt, lane.StartedAt, lane.ReadyAt = h.reserved, h.started, h.ready
		}
	}
	w.claims(wall)
	return w.sorted()
}

// rowsOn adds the instances that are on a node, unless they came there after its part of the drain had ended.
func (w *drawing) rowsOn(n fsm.DrainNode) {
	node, _ := w.state.Nodes.Get(n.Node)
	for i := range w.state.InstancesOn(n.Node) {
		if i.Terminal() || n.EndedWall > 0 && i.Marks.CreatedWall > n.EndedWall {
			continue
		}
		lane := w.lane(i.ID, i.Group, i.Slot, n.Node)
		lane.State = i.Status.Observed
		lane.Acked = node != nil && slices.Contains(node.Acked, i.ID)
	}
}

// lane returns the lane of an instance that is to leave a node. It makes one if there is none.
func (w *drawing) lane(id model.InstanceID, group model.GroupID, slot int, node model.NodeID) *api.DrainLane {
	lane, ok := w.lanes[id]
	if !ok {
		lane = &api.DrainLane{Node: w.name(node), NodeID: node, Instance: id, Group: group, Slot: slot,
			State: model.ObservedStopped}
		w.lanes[id] = lane
		if i, known := w.state.Instances.Get(id); known {
			lane.Slot, lane.State = i.Slot, i.Status.Observed
		}
	}
	return lane
}

func (w *drawing) name(id model.NodeID) string {
	if n, ok := w.state.Nodes.Get(id); ok {
		return n.Name
	}
	return string(id)
}

func (w *drawing) event(e *fsm.Event) {
	id, at := model.InstanceID(strings.TrimPrefix(e.Subject, "instance/")), time.UnixMilli(e.Wall).UTC()
	switch e.Type {
	case model.EventAllocated:
		w.placed(id, e, at)
	case model.EventDesired:
		w.stops(id, e, at)
	case model.EventStatus:
		if h := w.named[id]; h != nil {
			h.starts(model.Observed(e.After), at)
		}
		if lane := w.lanes[id]; lane != nil {
			ends(lane, model.Observed(e.After), at)
		}
	}
}

// placed notes a replacement. One that was never ready gives its place to the next.
func (w *drawing) placed(id model.InstanceID, e *fsm.Event, at time.Time) {
	before := model.InstanceID(e.Data["replaces"])
	if before == "" {
		return
	}
	h := w.heirs[before]
	if failed := w.named[before]; failed != nil && failed.ready == nil {
		h = failed
	}
	if h == nil {
		h = &heir{}
	}
	if h.ready != nil {
		return
	}
	delete(w.named, h.id)
	*h = heir{id: id, node: model.NodeID(e.Data["node"]), reserved: &at}
	w.heirs[before], w.named[id] = h, h
}

// stops notes that the stop of an instance began on a node of the drain. A stop after the node's part had ended is none
// of the drain.
func (w *drawing) stops(id model.InstanceID, e *fsm.Event, at time.Time) {
	after := model.Desired(e.After)
	if after != model.DesiredDraining && after != model.DesiredStopped {
		return
	}
	if lane := w.lanes[id]; lane != nil {
		if lane.StoppingAt == nil {
			lane.StoppingAt = &at
		}
		return
	}
	node := model.NodeID(e.Data["node"])
	p := w.parts[node]
	if p == nil || p.EndedWall > 0 && e.Wall > p.EndedWall {
		return
	}
	w.lane(id, model.GroupID(e.Data["group"]), 0, node).StoppingAt = &at
}

func (h *heir) starts(observed model.Observed, at time.Time) {
	switch observed {
	case model.ObservedBooting:
		h.started = cmp.Or(h.started, &at)
	case model.ObservedReady:
		h.started, h.ready = cmp.Or(h.started, &at), cmp.Or(h.ready, &at)
	}
}

// ends notes that an instance on a node of the drain has ended. A program that its agent restarted has not.
func ends(lane *api.DrainLane, observed model.Observed, at time.Time) {
	switch observed {
	case model.ObservedStopped:
		lane.StoppedAt = cmp.Or(lane.StoppedAt, &at)
	case model.ObservedBooting, model.ObservedReady, model.ObservedUnready:
		lane.StoppedAt = nil
	}
}

// claims notes the images that are pulled for replacements that are not placed yet.
func (w *drawing) claims(wall time.Time) {
	for _, lane := range w.lanes {
		if lane.Replacement != "" || lane.StoppedAt != nil {
			continue
		}
		for c := range w.state.PullsOf(lane.Group) {
			if c.Slot == lane.Slot {
				since := wall.Add(-time.Duration(w.state.Now-c.Since) * time.Millisecond).UTC().Truncate(time.Millisecond)
				lane.ReservedAt, lane.Target, lane.Pulling = &since, w.name(c.Node), c.Image
			}
		}
	}
}

func (w *drawing) sorted() []api.DrainLane {
	all := make([]api.DrainLane, 0, len(w.lanes))
	for _, lane := range w.lanes {
		all = append(all, *lane)
	}
	slices.SortFunc(all, func(a, b api.DrainLane) int {
		return cmp.Or(cmp.Compare(w.parts[a.NodeID].turn, w.parts[b.NodeID].turn), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Slot, b.Slot), cmp.Compare(a.Instance, b.Instance))
	})
	return all[:min(len(all), Most)]
}
