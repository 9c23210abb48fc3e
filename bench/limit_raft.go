package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/internal/procs"
)

// bareRaft consists of three nodes of the raft library in this process. It shows how fast raft can be on this machine.
// The nodes store their logs on disk as real servers do, but they use TCP without TLS on loopback, and apply nothing.
type bareRaft struct {
	nodes []*bareNode
	dir   string
}

const (
	bareNodes   = 3
	bareTimeout = 10 * time.Second
)

// bareNode is one node of a bareRaft or a bareCluster.
type bareNode struct {
	*raft.Raft
	close []func() error // close what the node uses; Close calls them in reverse order
}

// bareConfig returns settings with which raft commits entries as in the servers, but takes no snapshots.
func bareConfig(id string) *raft.Config {
	c := raft.DefaultConfig()
	c.LocalID = raft.ServerID(id)
	c.CommitTimeout, c.MaxAppendEntries = 50*time.Millisecond, 64
	c.SnapshotThreshold, c.TrailingLogs = 1<<40, 1<<16
	c.NoLegacyTelemetry = true
	c.LogOutput = io.Discard
	return c
}

func startBareRaft(ctx context.Context, dir string) (_ *bareRaft, err error) {
	b := &bareRaft{}
	if b.dir, err = os.MkdirTemp(dir, "outspan-bench-raft-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	addresses := bareAddresses(procs.Network())
	for i := range addresses {
		node, err := openBareNode(filepath.Join(b.dir, fmt.Sprint("r", i, ".db")), i, addresses)
		if err != nil {
			return nil, err
		}
		b.nodes = append(b.nodes, node)
	}
	err = b.waitLeader(ctx)
	return b, err
}

// bareAddresses returns each node's address for raft.
func bareAddresses(network string) (all []string) {
	for i := range bareNodes {
		all = append(all, fmt.Sprintf("%s.%d:7641", network, i+1))
	}
	return all
}

// openBareNode starts node i of a cluster whose nodes have the given addresses. The log of the node is the file at
// path. Node 0 bootstraps the cluster.
func openBareNode(path string, i int, addresses []string) (_ *bareNode, err error) {
	n := &bareNode{}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.Close())
		}
	}()
	stream, err := raft.NewTCPTransportWithConfig(addresses[i], nil,
		&raft.NetworkTransportConfig{MaxPool: 3, Timeout: bareTimeout, MaxRPCsInFlight: 1, Logger: nil})
	if err != nil {
		return nil, err
	}
	n.close = append(n.close, stream.Close)
	store, err := cluster.OpenBolt(path)
	if err != nil {
		return nil, err
	}
	n.close = append(n.close, store.Close)
	var servers []raft.Server
	for k, address := range addresses {
		servers = append(servers, raft.Server{ID: raft.ServerID(fmt.Sprint("r", k)), Address: raft.ServerAddress(address)})
	}
	conf, snapshots := bareConfig(string(servers[i].ID)), raft.NewInmemSnapshotStore()
	if i == 0 {
		if err := raft.BootstrapCluster(conf, store, store, snapshots, stream,
			raft.Configuration{Servers: servers}); err != nil {
			return nil, err
		}
	}
	n.Raft, err = raft.NewRaft(conf, nothingFSM{}, store, store, snapshots, stream)
	return n, err
}

// Close stops the node and closes its log.
func (n *bareNode) Close() error {
	var failed error
	if n.Raft != nil {
		failed = n.Shutdown().Error()
	}
	for _, end := range slices.Backward(n.close) {
		failed = errors.Join(failed, end())
	}
	return failed
}

func (b *bareRaft) waitLeader(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	for b.leader() == nil {
		select {
		case <-ctx.Done():
			return errors.New("bare raft elected no leader")
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (b *bareRaft) leader() *bareNode {
	for _, n := range b.nodes {
		if n.State() == raft.Leader {
			return n
		}
	}
	return nil
}

// write commits one entry and waits until the leader has applied it.
func (b *bareRaft) write(entry []byte) error {
	leader := b.leader()
	if leader == nil {
		return errors.New("bare raft has no leader")
	}
	return leader.Apply(entry, bareTimeout).Error()
}

// writeAll submits all entries at once, and then waits until the leader has applied all of them.
func (b *bareRaft) writeAll(entries [][]byte) error {
	leader := b.leader()
	if leader == nil {
		return errors.New("bare raft has no leader")
	}
	var futures []raft.ApplyFuture
	for _, e := range entries {
		futures = append(futures, leader.Apply(e, bareTimeout))
	}
	for _, f := range futures {
		if err := f.Error(); err != nil {
			return err
		}
	}
	return nil
}

// Close stops the nodes and removes their files.
func (b *bareRaft) Close() error {
	var failed error
	for _, n := range b.nodes {
		failed = errors.Join(failed, n.Close())
	}
	return errors.Join(failed, os.RemoveAll(b.dir))
}

type nothingFSM struct{}

// Apply implements raft.FSM.
func (nothingFSM) Apply(*raft.Log) any { return nil }

// Snapshot implements raft.FSM.
func (nothingFSM) Snapshot() (raft.FSMSnapshot, error) {
	return nil, errors.New("bare raft takes no snapshots")
}

// Restore implements raft.FSM.
func (nothingFSM) Restore(r io.ReadCloser) error { return r.Close() }
