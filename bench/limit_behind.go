package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/outspan/outspan/bench/fleet"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// bareCluster consists of three processes of this program. Each process runs one node of the raft library behind an
// envelope, an HTTPS server. So a write wakes as many threads and processes as with the real servers.
type bareCluster struct {
	dir, network string
	processes    []*procs.Process
	creds        *transport.Credentials
	leader       string // host:port of the leader's envelope
}

// bareCommand as the first argument makes this program run one node of a bareCluster.
const bareCommand = "bare-raft"

// Paths that the envelope of a node serves.
const (
	pathWrite = "/write" // writes through raft
	pathEmpty = "/empty" // does nothing
)

func startBareCluster(ctx context.Context, dir string) (_ *bareCluster, err error) {
	b := &bareCluster{network: procs.Network()}
	if b.dir, err = os.MkdirTemp(dir, "outspan-bench-raft-"); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	ca, _, err := transport.OpenDir(b.dir, fleet.Name)
	if err != nil {
		return nil, err
	}
	if b.creds, err = ca.Credentials(pki.RoleCLI, "bench"); err != nil {
		return nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	for i := range bareNodes {
		p := &procs.Process{Name: fmt.Sprint("r", i), Tied: true, Log: filepath.Join(b.dir, fmt.Sprint("r", i, ".log")),
			Command: []string{program, bareCommand, b.dir, b.network, strconv.Itoa(i)}}
		if err := p.Start(); err != nil {
			return nil, err
		}
		b.processes = append(b.processes, p)
	}
	err = procs.Until(ctx, 20*time.Second, 50*time.Millisecond, b.findLeader)
	return b, err
}

// findLeader sends a write to each node. The node that accepts the write is the leader.
func (b *bareCluster) findLeader(ctx context.Context) error {
	var failed error
	for i, p := range b.processes {
		if !p.Running() {
			return fmt.Errorf("%s has ended: %s", p.Name, p.LastLines(5))
		}
		c, err := transport.NewClient(transport.ClientConfig{Addresses: []string{"https://" + bareAPI(b.network, i)},
			Credentials: b.creds, RetryFor: -1})
		if err != nil {
			return err
		}
		_, err = fleet.Post(ctx, c, pathWrite, nil, nil)
		c.Close()
		if err == nil {
			b.leader = bareAPI(b.network, i)
			return nil
		}
		failed = errors.Join(failed, err)
	}
	return failed
}

// rate lets the given number of clients post to path for o.length. It returns how many requests per second the leader
// answered.
func (b *bareCluster) rate(ctx context.Context, o options, clients int, path string) (float64, error) {
	r, err := postLoad(ctx, b.creds, b.leader, clients, o.length, func(n int64) (string, any) {
		return path, labelBody(n)
	})
	return r.rate(), err
}

// Close kills the processes and removes their files.
func (b *bareCluster) Close() error {
	for _, p := range b.processes {
		p.Kill()
	}
	return os.RemoveAll(b.dir)
}

func bareAPI(network string, i int) string { return fmt.Sprintf("%s.%d:7640", network, i+1) }

// runBare runs one node of a bareCluster until ctx ends. args are the directory that all nodes share, the network of
// the nodes, and the number of this node.
func runBare(ctx context.Context, args []string) error {
	if len(args) != 3 {
		return fmt.Errorf("%s is for this program itself", bareCommand)
	}
	dir, network := args[0], args[1]
	i, err := strconv.Atoi(args[2])
	if err != nil || i < 0 || i >= bareNodes {
		return fmt.Errorf("%s: there is no node %q", bareCommand, args[2])
	}
	entry, err := fsm.EncodeEntry(labelEntry())
	if err != nil {
		return err
	}
	ca, _, err := transport.OpenDir(dir, fleet.Name)
	if err != nil {
		return err
	}
	node, err := openBareNode(filepath.Join(dir, fmt.Sprint("r", i, ".db")), i, bareAddresses(network))
	if err != nil {
		return err
	}
	e, err := startEnvelope(ctx, ca, bareAPI(network, i), func(path string) error {
		if path == pathEmpty {
			return nil
		}
		return node.Apply(entry, bareTimeout).Error()
	})
	if err == nil {
		<-ctx.Done()
		e.Close()
	}
	return errors.Join(err, node.Close())
}
