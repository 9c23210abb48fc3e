package daemon

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// An agent that knew one server learns the addresses of the others, and finds them after a restart although the first
// one is dead. Agents and servers say which CAs and gossip keys they use. The agent remembers revocations.
func TestAgentLearnsServers(t *testing.T) {
	m := &managed{t: t}
	s1 := m.found("s1")
	eventually(t, "the cluster is managed", func() bool { return s1.machine.Current().Managed() })
	m.join(s1, pki.RoleAgent, "n1")
	block := fmt.Sprintf("agent {\n  allow_root = true\n  servers = [%q]\n}\n", s1.p.own)
	m.start("n1", block)
	stopAgent := m.stop[len(m.stop)-1]
	var before uint64
	eventually(t, "the node is registered", func() bool {
		n, refusal := s1.machine.Current().Finder(nil).NamedNode("n1")
		if refusal == nil {
			before = n.Agent.Epoch
		}
		return refusal == nil
	})
	s2 := m.join(s1, pki.RoleServer, "s2")
	s3 := m.join(s1, pki.RoleServer, "s3")
	m.holds(s1, model.SubjectAgent, "n1")
	for _, name := range []string{"s1", "s2", "s3"} {
		m.holds(s1, model.SubjectServer, name)
	}
	eventually(t, "all servers are voters", func() bool {
		voters := 0
		for _, one := range s1.cluster.Servers() {
			if one.Voter {
				voters++
			}
		}
		return voters == 3
	})
	m.join(s1, pki.RoleAgent, "gone")
	m.submit(s1, &fsm.MemberRevoke{Subject: model.Subject{Kind: model.SubjectAgent, Name: "gone"}})
	var known struct {
		Servers []string            `json:"servers"`
		Revoked []transport.Revoked `json:"revoked"`
	}
	eventually(t, "the agent knows all servers, and the revocation", func() bool {
		text, err := os.ReadFile(filepath.Join(transport.ManagedDir(m.dir("n1")).Path(), "news.json"))
		return err == nil && json.Unmarshal(text, &known) == nil && len(known.Servers) == 3 && len(known.Revoked) == 1
	})
	stopAgent()
	m.stop[0]()
	eventually(t, "the others have a leader", func() bool {
		leader, _, ok := s2.cluster.Leader()
		return ok && leader.Name != "s1"
	})
	m.start("n1", block)
	eventually(t, "the node is registered again", func() bool {
		for _, s := range []*serverPart{s2, s3} {
			if n, refusal := s.machine.Current().Finder(nil).NamedNode("n1"); refusal == nil && n.Agent.Epoch > before {
				return true
			}
		}
		return false
	})
}

// holds waits until the row of a member says that it uses the CAs and the gossip keys of its files.
func (m *managed) holds(s *serverPart, kind model.SubjectKind, name string) {
	m.t.Helper()
	dir := transport.ManagedDir(m.dir(name))
	var roots [][]byte
	for _, root := range must(dir.Roots())(m.t) {
		roots = append(roots, root.Raw)
	}
	gossip := bare(must(dir.GossipKeys())(m.t))
	eventually(m.t, fmt.Sprintf("the row of %s %s has its keys", kind, name), func() bool {
		row, ok := s.machine.Current().TrustMemberOf(model.Subject{Kind: kind, Name: name})
		return ok && bytes.Equal(row.Roots, pki.RootsDigest(roots)) && bytes.Equal(row.Gossip, pki.GossipDigest(gossip))
	})
}
