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

// givenUp holds the registrations that this server agreed to call offline: the epoch of each such node. The entry that
// makes the node offline may be on its way, and the node's instances may soon run elsewhere. So this server no longer
// renews their leases, even after a restart with an older state.
type givenUp struct {
	mu     sync.Mutex
	epochs map[model.NodeID]uint64
}

// readGivenUp reads the agreements of an earlier process from the disk.
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

// giveUp agrees that these registrations are offline. If it returns nil, the agreement is on disk. After an error,
// nothing was agreed.
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

// writeGivenUp writes the list if it differs from the list on disk. s.seen.given.mu is held.
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

// forgetNodes forgets nodes that the state no longer has, and given-up registrations that a later one replaced. The
// state must be caught up.
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
