package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"sync"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

// givenUp contains the registrations that this server agreed to call offline, as the epoch of each node. The leader may
// already have written that such a node is offline, and its instances may soon run elsewhere. So this server no longer
// renews the node's leases, even after a restart with an older state.
type givenUp struct {
	mu     sync.Mutex
	epochs map[model.NodeID]uint64
}

// readGivenUp reads from disk what earlier processes of this server agreed to.
func (s *Server) readGivenUp() error {
	path := s.dir.file(fileGivenUp)
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	epochs := map[model.NodeID]uint64{}
	if err == nil {
		err = json.Unmarshal(text, &epochs)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	s.seen.given.epochs = epochs
	for node, epoch := range epochs {
		s.seen.hearts.GiveUp(node, epoch)
	}
	return nil
}

// giveUp agrees that these registrations are offline. If it returns nil, the agreement is on disk. If it returns an
// error, this server has agreed to nothing.
func (s *Server) giveUp(nodes []nodeEpoch) error {
	g := &s.seen.given
	g.mu.Lock()
	defer g.mu.Unlock()
	next := maps.Clone(g.epochs)
	if next == nil {
		next = map[model.NodeID]uint64{}
	}
	for _, n := range nodes {
		next[n.Node] = n.Epoch
	}
	if err := s.writeGivenUp(next); err != nil {
		return err
	}
	for _, n := range nodes {
		s.seen.hearts.GiveUp(n.Node, n.Epoch)
	}
	return nil
}

// writeGivenUp writes the new list to disk, unless the list on disk is equal. The caller holds s.seen.given.mu.
func (s *Server) writeGivenUp(next map[model.NodeID]uint64) error {
	if maps.Equal(next, s.seen.given.epochs) {
		return nil
	}
	text, err := json.Marshal(next)
	if err == nil {
		err = durable.ReplaceBytes(s.dir.file(fileGivenUp), append(text, '\n'), 0o600)
	}
	if err == nil {
		s.seen.given.epochs = next
	}
	return err
}

// forgetNodes forgets nodes that are not in the state, and given-up registrations that a newer registration replaced.
// It may be called only after the state has caught up, because an older state may lack nodes.
func (s *Server) forgetNodes() {
	nodes := s.cfg.Machine.State().Nodes
	s.seen.hearts.Retain(nodes.Has)
	g := &s.seen.given
	g.mu.Lock()
	defer g.mu.Unlock()
	next := maps.Clone(g.epochs)
	maps.DeleteFunc(next, func(id model.NodeID, epoch uint64) bool {
		n, ok := nodes.Get(id)
		return !ok || n.Agent.Epoch > epoch
	})
	if err := s.writeGivenUp(next); err != nil {
		s.log.Warn("can't shorten the list of nodes that were given up", "error", err)
	}
}
