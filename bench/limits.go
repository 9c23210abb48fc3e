package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// limits are the rates that this machine reaches without outspan's servers. They are measured before any server starts.
type limits struct {
	raftWrites map[int]float64 // writes of a labelEntry per second to bareRaft, by number of clients
	overHTTPS  map[int]float64 // writes of a labelEntry per second to bareCluster, by number of clients
	empty      map[int]float64 // requests per second to an envelope that does nothing, by number of clients
	placements float64         // placements per second that bareRaft commits, with perEntry placements in an entry
	apply      float64         // placements per second that one goroutine decodes and applies, without raft
}

// writers returns the numbers of concurrent clients for which single writes are measured.
func writers() []int { return []int{1, 64, 256} }

func measureLimits(ctx context.Context, o options) (*limits, error) {
	l := &limits{raftWrites: map[int]float64{}, overHTTPS: map[int]float64{}, empty: map[int]float64{}}
	if err := l.throughRaft(ctx, o); err != nil {
		return nil, fmt.Errorf("bare raft: %w", err)
	}
	if err := l.behindHTTPS(ctx, o); err != nil {
		return nil, fmt.Errorf("bare raft over HTTPS: %w", err)
	}
	var err error
	l.apply, err = applyLimit(o)
	return l, err
}

func (l *limits) throughRaft(ctx context.Context, o options) (err error) {
	raft, err := startBareRaft(ctx, o.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raft.Close()) }()
	entry, err := fsm.EncodeEntry(labelEntry())
	if err != nil {
		return err
	}
	for _, clients := range writers() {
		r, err := load(ctx, clients, o.length, func(context.Context, int) error { return raft.write(entry) })
		if err != nil {
			return err
		}
		l.raftWrites[clients] = r.rate()
	}
	return l.placementsThroughRaft(o, raft)
}

func (l *limits) behindHTTPS(ctx context.Context, o options) (err error) {
	raft, err := startBareCluster(ctx, o.dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, raft.Close()) }()
	for _, clients := range writers() {
		if l.overHTTPS[clients], err = raft.rate(ctx, o, clients, pathWrite); err != nil {
			return err
		}
		if l.empty[clients], err = raft.rate(ctx, o, clients, pathEmpty); err != nil {
			return err
		}
	}
	return nil
}

func labelBody(n int64) any {
	return map[string]any{"labels": map[string]string{"bench": fmt.Sprint(n)}}
}

// labelEntry returns an entry as a server writes it when a client sets one label of a node.
func labelEntry() fsm.Entry {
	return fsm.Entry{
		Format: 1, At: 1000, Wall: time.Now().UnixMilli(), Actor: "cli:bench", Request: model.RequestID(ulid.Make().String()),
		Body: "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		Groups: [][]fsm.Command{
			{&fsm.NodeLabel{ID: model.NodeID(ulid.Make().String()), Labels: map[string]string{"bench": "12345"}}}},
	}
}

// perEntry is the number of placements in one entry of the benchmark. The leader puts up to 1,000 commands into an
// entry.
const perEntry = 500

func (l *limits) placementsThroughRaft(o options, raft *bareRaft) error {
	entries, _, err := placementEntries(o.group*5, 1)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := raft.writeAll(entries); err != nil {
		return err
	}
	l.placements = float64(o.group*5) / time.Since(began).Seconds()
	return nil
}

// placementEntries returns encoded entries that place n instances evenly on the given number of nodes. before are the
// entries that must be applied first. They submit the job and register the nodes.
func placementEntries(n int, nodes int) (entries, before [][]byte, err error) {
	add := func(to *[][]byte, groups ...[]fsm.Command) {
		var data []byte
		if err == nil {
			data, err = fsm.EncodeEntry(fsm.Entry{Format: 1, At: 1000, Actor: model.ActorLeader, Groups: groups})
		}
		*to = append(*to, data)
	}
	spec := groupSpec("g", n)
	add(&before, []fsm.Command{&fsm.JobSubmit{Spec: model.JobSpec{Name: "limit", Groups: []model.GroupSpec{spec}}}})
	for i := range nodes {
		id := model.NodeID(fmt.Sprintf("node-%05d", i))
		shape := model.NodeShape{Capacity: nodeCapacity(), PortMin: 20000, PortMax: 31999}
		add(&before,
			[]fsm.Command{&fsm.NodeRegister{ID: id, Name: string(id),
				Agent: model.AgentInfo{BootID: "b", Incarnation: "i", Address: "127.0.0.1", Key: make([]byte, 32)}, Shape: shape}},
			[]fsm.Command{&fsm.NodeReport{ID: id, Epoch: uint64(i + 2), Full: true}})
	}
	var groups [][]fsm.Command
	for i := range n {
		groups = append(groups, []fsm.Command{&fsm.InstancePlace{
			ID: fsm.DeriveInstanceID(model.Seen{Index: 1}, "", "limit/g", i, uint64(i)), Group: "limit/g", Slot: i, Version: 1,
			Node: model.NodeID(fmt.Sprintf("node-%05d", i%nodes)), Cause: model.CauseScaleUp,
		}})
		if len(groups) == perEntry || i == n-1 {
			add(&entries, groups...)
			groups = nil
		}
	}
	return entries, before, err
}

func applyLimit(o options) (float64, error) {
	entries, before, err := placementEntries(o.group, o.nodes)
	if err != nil {
		return 0, err
	}
	m := fsm.NewMachine()
	index := uint64(0)
	apply := func(data []byte) error {
		index++
		results, err := m.Apply(index, 1, data)
		for _, r := range results {
			if err == nil && r.Refusal != nil {
				err = r.Refusal
			}
		}
		return err
	}
	for _, data := range before {
		if err := apply(data); err != nil {
			return 0, fmt.Errorf("bare apply: %w", err)
		}
	}
	began := time.Now()
	for _, data := range entries {
		if err := apply(data); err != nil {
			return 0, fmt.Errorf("bare apply: %w", err)
		}
	}
	return float64(o.group) / time.Since(began).Seconds(), nil
}
