package transport

import (
	"bytes"
	"crypto/x509"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/pki"
)

const (
	copyApart = 5 * time.Second  // both machines must be seen for at least this long
	copyKept  = 10 * time.Minute // how long signs count after the last one
	maxCopies = 256              // agents with signs; one more, and the oldest signs are dropped
)

// Copy is an agent whose identity two machines use at the same time. One is probably a copy of the other's disk.
type Copy struct {
	Node   string // name of the agent's node
	First  string // where the agent is
	Second string // where the other one is, which was refused or took turns with the first
}

// Copies collects signs that two machines use the identity of one agent. A sign alone is not enough, because a machine
// may have got another address: both machines must be seen to run after that. Its memory is bounded. Safe for
// concurrent use.
type Copies struct {
	mu  sync.Mutex
	all map[string]*copySigns // by node
}

// copySigns are the signs for one node.
type copySigns struct {
	found  Copy
	since  time.Time // when the second machine was first refused
	last   time.Time // when the last sign was seen
	proven bool      // both run
	left   string    // the boot id that another one replaced last
}

// NewCopies returns an empty Copies.
func NewCopies() *Copies { return &Copies{all: map[string]*copySigns{}} }

// Refused notes that a second agent of a node was refused, because another one is the agent. alive is the last time at
// which the other one certainly ran.
func (c *Copies) Refused(of Copy, alive time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.signs(of.Node)
	if s.since.IsZero() {
		s.since = s.last
	}
	s.found, s.proven = of, s.proven || alive.Sub(s.since) >= copyApart
}

// Boot is one agent process of a node: the boot of its machine, and its address.
type Boot struct{ ID, Address string }

// Registered notes that a node's agent registered after another one had. A boot id never comes back, so two machines
// take turns if one does.
func (c *Copies) Registered(node string, before, now Boot) {
	if before.ID == "" || before.ID == now.ID {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.signs(node)
	if s.left == now.ID {
		s.proven, s.found = true, Copy{node, now.where(before), before.where(now)}
	}
	s.left = before.ID
}

// where returns the address, with the boot id if both machines name the same address.
func (b Boot) where(other Boot) string {
	if b.Address != other.Address {
		return b.Address
	}
	return b.Address + " (boot id " + b.ID + ")"
}

// signs returns the signs of a node, without those that are too old. The caller holds the lock.
func (c *Copies) signs(node string) *copySigns {
	now := time.Now()
	s, known := c.all[node]
	if !known && len(c.all) >= maxCopies {
		oldest := ""
		for name, one := range c.all {
			if oldest == "" || one.last.Before(c.all[oldest].last) {
				oldest = name
			}
		}
		delete(c.all, oldest)
	}
	if !known || now.Sub(s.last) > copyKept {
		s = &copySigns{}
		c.all[node] = s
	}
	s.last = now
	return s
}

// Found returns the agents that two machines were seen to be within the last ten minutes, by name.
func (c *Copies) Found() []Copy {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []Copy
	for name, s := range c.all {
		switch {
		case time.Since(s.last) > copyKept:
			delete(c.all, name)
		case s.proven:
			found = append(found, s.found)
		}
	}
	slices.SortFunc(found, func(a, b Copy) int { return strings.Compare(a.Node, b.Node) })
	return found
}

// noteCopy notes that the certificate of an agent was refused, if the agent has an open connection with another key.
// Then the refused certificate was replaced, and another machine than the agent still has it.
func (l *Listener) noteCopy(g *gate, peer pki.Identity, leaf *x509.Certificate) {
	if l.cfg.Copies == nil || peer.Role != pki.RoleAgent {
		return
	}
	if host, ok := l.api.hostOf(peer.String(), leaf); ok {
		l.cfg.Copies.Refused(Copy{Node: peer.Name, First: host, Second: g.host}, time.Now())
	}
}

// hostOf returns the address of an open connection of a peer whose key is not that of leaf.
func (b *budget) hostOf(peer string, leaf *x509.Certificate) (host string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.peers[peer] == 0 {
		return "", false
	}
	for g, name := range b.open {
		if name == peer && !bytes.Equal(g.proof[0].RawSubjectPublicKeyInfo, leaf.RawSubjectPublicKeyInfo) {
			return g.host, true
		}
	}
	return "", false
}
