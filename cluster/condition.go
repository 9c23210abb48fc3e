package cluster

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Condition is what a server reports of its own machine when it answers a tick of the leader. It is shown to people,
// and no decision depends on it. Agents also get Gossip, as one of ServerStatus.Listens.
type Condition struct {
	DataDir    string `cbor:"1,keyasint,omitempty"` // cut off after maxToldPath bytes
	FreeBytes  int64  `cbor:"2,keyasint,omitempty"` // on the file system of DataDir; the ballast counts as used
	TotalBytes int64  `cbor:"3,keyasint,omitempty"` // of that file system; 0 means not known
	Expect     int    `cbor:"4,keyasint,omitempty"` // bootstrap_expect of the server's configuration
	SavedAt    int64  `cbor:"5,keyasint,omitempty"` // when the server last saved a snapshot, Unix ms; 0 means never

	Cert   Lifetime    `cbor:"6,keyasint,omitempty"`  // validity of the server's own certificate
	Agents []AgentCert `cbor:"7,keyasint,omitempty"`  // agents' certificates that expire soon, at most maxToldCerts
	Gossip string      `cbor:"8,keyasint,omitempty"`  // host:port of the server's gossip
	Copies []NodeCopy  `cbor:"9,keyasint,omitempty"`  // agents whose identity two machines use, at most maxToldCerts
	Audit  string      `cbor:"10,keyasint,omitempty"` // why the audit log can't be written; cut off as DataDir is

	AuditMode string `cbor:"11,keyasint,omitempty"` // see Certificates; empty from an older version
	SignIn    string `cbor:"12,keyasint,omitempty"` // see Certificates; cut off as DataDir is
}

const (
	maxToldPath  = 256
	maxToldCerts = 8
)

// Lifetime is the validity of a certificate, in Unix ms. The zero value means that the validity is not known.
type Lifetime struct {
	From  int64 `cbor:"1,keyasint"`
	Until int64 `cbor:"2,keyasint"`
}

// AgentCert is the certificate of an agent that called a server. It has no nested values, because servers of older
// versions refuse an answer with more than four levels of nesting.
type AgentCert struct {
	Node  string `cbor:"1,keyasint"` // name of the node
	From  int64  `cbor:"2,keyasint"` // Unix ms
	Until int64  `cbor:"3,keyasint"`
}

// NodeCopy is a transport.Copy. Each text is cut off after maxToldHost bytes.
type NodeCopy struct {
	Node   string `cbor:"1,keyasint"`
	First  string `cbor:"2,keyasint"`
	Second string `cbor:"3,keyasint"`
}

// maxToldHost is the length of a boot id and an IPv6 address, in bytes, and some more.
const maxToldHost = 128

// Certificates is what this process knows of its own certificate and of its agents' certificates.
type Certificates struct {
	Own    transport.Lifetime
	Agents map[string]transport.Lifetime // of agents that called, by node name; only those that expire soon
	Copies []transport.Copy
	Audit  string // why the audit log can't be written at present, or ""

	AuditMode string // whether there is an audit log, in a few words that are the same on servers with the same one
	SignIn    string // why nobody can sign in with the provider at present, or ""
}

func lifetime(l transport.Lifetime) Lifetime {
	if l.Until.IsZero() {
		return Lifetime{}
	}
	return Lifetime{From: l.From.UnixMilli(), Until: l.Until.UnixMilli()}
}

// Condition returns this server's own condition. It does not block.
func (s *Server) Condition() Condition {
	c := Condition{DataDir: s.cfg.DataDir, Expect: s.cfg.BootstrapExpect, SavedAt: s.state.saved.Load(),
		Gossip: s.seen.pool.Address()}
	c.DataDir = c.DataDir[:min(len(c.DataDir), maxToldPath)]
	c.FreeBytes, c.TotalBytes = s.disk.space.seen()
	if s.cfg.Certificates == nil {
		return c
	}
	certs := s.cfg.Certificates()
	c.Cert = lifetime(certs.Own)
	c.Audit, c.SignIn = model.ClipText(certs.Audit, maxToldPath), model.ClipText(certs.SignIn, maxToldPath)
	c.AuditMode = certs.AuditMode[:min(len(certs.AuditMode), maxToldHost)]
	for _, node := range soonest(certs.Agents) {
		life := lifetime(certs.Agents[node])
		c.Agents = append(c.Agents, AgentCert{Node: node, From: life.From, Until: life.Until})
	}
	clip := func(s string) string { return s[:min(len(s), maxToldHost)] }
	for _, one := range certs.Copies[:min(len(certs.Copies), maxToldCerts)] {
		c.Copies = append(c.Copies, NodeCopy{clip(one.Node), clip(one.First), clip(one.Second)})
	}
	return c
}

// soonest returns the names of the nodes whose certificates expire first, at most maxToldCerts.
func soonest(all map[string]transport.Lifetime) []string {
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(all[a].Until.Compare(all[b].Until), strings.Compare(a, b))
	})
	return names[:min(len(names), maxToldCerts)]
}

// noteSaved records, in memory and on disk, that a snapshot was saved now.
func (s *Server) noteSaved() {
	now := s.cfg.Wall()
	s.state.saved.Store(now.UnixMilli())
	if err := durable.ReplaceBytes(s.dir.file(fileSaved), []byte(now.UTC().Format(time.RFC3339)+"\n"), 0o600); err != nil {
		s.log.Warn("can't note that a snapshot was saved", "error", err)
	}
}

// readSaved reads the time that noteSaved wrote. If the file is missing, the time stays 0. If the file can't be read,
// readSaved only logs the error.
func (s *Server) readSaved() {
	text, err := os.ReadFile(s.dir.file(fileSaved))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	at, parsed := time.Parse(time.RFC3339, strings.TrimSpace(string(text)))
	if err = errors.Join(err, parsed); err != nil {
		s.log.Warn("can't read when a snapshot was last saved", "error", err)
		return
	}
	s.state.saved.Store(at.UnixMilli())
}
