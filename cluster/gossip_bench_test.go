package cluster

import (
	"bytes"
	"context"
	"io"
	"log"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// BenchmarkHeartbeat measures the work of both ends for one heartbeat and its answer, over loopback sockets. It
// compares this package's sockets with memberlist's.
func BenchmarkHeartbeat(b *testing.B) {
	for _, one := range []struct {
		name      string
		transport func(address string) Transport
	}{
		{"own", func(string) Transport { return nil }},
		{"memberlist", func(address string) Transport {
			nt, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{address},
				Logger: log.New(io.Discard, "", 0)})
			if err != nil {
				b.Fatal(err)
			}
			return nt
		}},
	} {
		b.Run(one.name, func(b *testing.B) { benchHeartbeat(b, one.transport) })
	}
}

func benchHeartbeat(b *testing.B, via func(string) Transport) {
	open := func(name, address string, role pki.Role) *Pool {
		p, err := OpenPool(PoolConfig{Name: name, Cluster: "test", Key: testGossipKey, Bind: address, Transport: via(address),
			Meta: Meta{Role: role, Name: name}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = p.Abandon() })
		return p
	}
	server, agent := open("s1", "127.0.0.1", pki.RoleServer), open("n1", "127.0.0.2", pki.RoleAgent)
	if err := agent.Join(server.Address()); err != nil {
		b.Fatal(err)
	}
	key := bytes.Repeat([]byte{3}, 32)
	hearts, err := NewHearts(HeartsConfig{
		Self: "s1", NodeKey: func(nodeEpoch) ([]byte, bool) {
			return key, true
		}, Offline: func(nodeEpoch) bool { return false },
		Answer: server.Answer, Alive: server.Heard, Voters: func() electorate {
			return electorate{Index: 1, Voters: []model.ServerID{"s1"}}
		}, Logger: hclog.NewNullLogger(),
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		for {
			select {
			case msg := <-server.Receive():
				hearts.Receive(msg)
			case <-ctx.Done():
				return
			}
		}
	})
	beats := NewBeater(BeaterConfig{Node: "n1", BootID: "boot", Incarnation: "i", Pool: agent})
	beats.Register(key, 1, time.Hour)
	answer := func() {
		select {
		case msg := <-agent.Receive():
			beats.receive(msg)
		case <-time.After(5 * time.Second):
			b.Fatal("no answer")
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		beats.beat("s1")
		answer()
	}
}
