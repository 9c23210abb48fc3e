package agent

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// otherNode adds a second node, which has no agent, to the state. It returns the id of that node.
func (b *bench) otherNode() model.NodeID {
	b.t.Helper()
	const id = "01OTHER"
	b.apply(&fsm.NodeRegister{ID: id, Name: "n2",
		Agent: model.AgentInfo{BootID: "b2", Address: "127.0.0.9", Key: []byte("key")},
		Shape: model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: 8 << 30}, PortMin: 20000, PortMax: 32000}})
	n, _ := b.m.State().Nodes.Get(id)
	b.apply(&fsm.NodeReport{ID: id, Epoch: n.Agent.Epoch, Full: true})
	return id
}

// When a program starts, its file OUTSPAN_PEERS lists the instances of its group, ready or not. The program gets a
// signal when this list changes. While no server answers, a restart of the agent leaves the file as it is.
func TestPeers(t *testing.T) {
	b := newBench(t, allowRoot)
	seen, ports := filepath.Join(b.dir, "seen"), model.Ports{{Name: "http", Number: 21777}}
	copied := "cp $OUTSPAN_PEERS " + seen + ".new; mv " + seen + ".new " + seen
	g := sh("trap '" + copied + "' HUP; " + copied + "; while :; do sleep 0.05; done")
	g.Count, g.Ports, g.Peers = 3, []model.PortSpec{{Name: "http"}}, &model.PeersSpec{Signal: "SIGHUP"}
	group := b.submit("web", plainUser(g))
	other := b.otherNode()
	b.place(group, 1, other, ports)
	first := b.place(group, 0, b.node(), ports)
	b.await(first, model.ObservedReady)
	read := func() string { text, _ := os.ReadFile(seen); return string(text) }
	const own, theirs = "0 web-g-0 127.0.0.1 ", "1 web-g-1 127.0.0.9 starting n2 http=21777\n"
	if text := read(); !strings.HasPrefix(text, own+"starting n1 http=21777\n"+theirs) || strings.Count(text, "\n") != 2 {
		t.Errorf("the program began with %q", text)
	}

	third := b.place(group, 2, other, model.Ports{{Name: "http", Number: 21778}})
	eventually(t, "the program hears of another one", func() bool {
		return strings.Contains(read(), "2 web-g-2 127.0.0.9 starting n2 http=21778\n")
	})
	var list transport.GroupPeers
	text, err := os.ReadFile(b.agent.shared.peers.path(group) + ".json")
	must(t, err)
	must(t, json.Unmarshal(text, &list))
	if len(list.Members) != 3 || list.Members[2].Instance != third || list.Members[2].Ports["http"] != 21778 {
		t.Errorf("as JSON: %+v", list)
	}

	b.stop(third, nil)
	n, _ := b.m.State().Nodes.Get(other)
	b.apply(&fsm.NodeReport{ID: other, Epoch: n.Agent.Epoch,
		Instances: []model.InstanceStatus{{ID: third, Generation: 1, Observed: model.ObservedStopped}}})
	eventually(t, "the program hears that it is gone", func() bool { return !strings.Contains(read(), "web-g-2") })

	b.stopAgent()
	b.setDown(true)
	b.apply(&fsm.NodeRegister{ID: other, Name: "n2",
		Agent: model.AgentInfo{BootID: "b3", Address: "127.0.0.10", Key: []byte("key")}, Shape: n.Shape})
	b.start()
	if text, err := os.ReadFile(b.agent.shared.peers.path(group)); err != nil || !strings.Contains(string(text), theirs) {
		t.Errorf("while no server answers: %q %v", text, err)
	}
	b.setDown(false)
	eventually(t, "the program hears of the other node's new address", func() bool {
		return strings.Contains(read(), "1 web-g-1 127.0.0.10 ")
	})

	b.stop(first, nil)
	b.await(first, model.ObservedStopped)
	eventually(t, "the files are removed", func() bool {
		left, _ := filepath.Glob(filepath.Join(b.cfg.DataDir, "peers", "*"))
		return len(left) == 0
	})
}
