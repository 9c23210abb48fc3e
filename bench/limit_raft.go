package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/cluster"
)

// bareRaft is three nodes of the library with a log that is opened as the servers open theirs, over plain TCP on loopback, and a state that keeps
// nothing: the most that consensus can give on this machine.
type bareRaft struct {
	nodes []*raft.Raft
	close []func() error
	dir   string
}

const bareTimeout = 10 * time.Second

// settings are those of the servers.
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
	var servers []raft.Server
	var transports []*raft.NetworkTransport
	for i := range 3 {
		stream, err := raft.NewTCPTransportWithConfig("127.0.0.1:0", nil, &raft.NetworkTransportConfig{
			MaxPool: 3, Timeout: bareTimeout, MaxRPCsInFlight: 1, Logger: nil,
		})
		if err != nil {
			return nil, err
		}
		transports = append(transports, stream)
		b.close = append(b.close, stream.Close)
		servers = append(servers, raft.Server{ID: raft.ServerID(fmt.Sprint("r", i)), Address: stream.LocalAddr()})
	}
	for i := range 3 {
		store, err := cluster.OpenBolt(filepath.Join(b.dir, fmt.Sprint("r", i, ".db")))
		if err != nil {
			return nil, err
		}
		b.close = append(b.close, store.Close)
		conf := bareConfig(string(servers[i].ID))
		snapshots := raft.NewInmemSnapshotStore()
		if i == 0 {
			if err := raft.BootstrapCluster(conf, store, store, snapshots, transports[i], raft.Configuration{Servers: servers}); err != nil {
				return nil, err
			}
		}
		node, err := raft.NewRaft(conf, nothingFSM{}, store, store, snapshots, transports[i])
		if err != nil {
			return nil, err
		}
		b.nodes = append(b.nodes, node)
	}
	err = b.waitLeader(ctx)
	return b, err
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

func (b *bareRaft) leader() *raft.Raft {
	for _, n := range b.nodes {
		if n.State() == raft.Leader {
			return n
		}
	}
	return nil
}

// write commits one entry and waits until it is applied on the leader.
func (b *bareRaft) write(entry []byte) error {
	leader := b.leader()
	if leader == nil {
		return errors.New("bare raft has no leader")
	}
	return leader.Apply(entry, bareTimeout).Error()
}

// writeAll commits entries one behind the other without waiting in between, and waits for the last.
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

// Close ends the nodes and removes their files.
func (b *bareRaft) Close() error {
	var failed error
	for _, n := range b.nodes {
		failed = errors.Join(failed, n.Shutdown().Error())
	}
	for i := len(b.close) - 1; i >= 0; i-- {
		failed = errors.Join(failed, b.close[i]())
	}
	return errors.Join(failed, os.RemoveAll(b.dir))
}

// nothingFSM applies nothing.
type nothingFSM struct{}

// Apply implements raft.FSM.
func (nothingFSM) Apply(*raft.Log) any { return nil }

// Snapshot implements raft.FSM.
func (nothingFSM) Snapshot() (raft.FSMSnapshot, error) {
	return nil, errors.New("bare raft takes no snapshots")
}

// Restore implements raft.FSM.
func (nothingFSM) Restore(r io.ReadCloser) error { return r.Close() }
