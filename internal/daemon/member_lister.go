package daemon

import (
	"context"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
	"github.com/outspan/outspan/transport/metrics"
)

// memberLister converts the list of servers to the types of the API.
type memberLister struct{ *cluster.Server }

// Members implements httpapi.ServerList. It asks no other server. It returns what each server last reported.
func (r memberLister) Members(context.Context) ([]httpapi.ServerEntry, error) {
	var entries []httpapi.ServerEntry
	for _, s := range r.Servers() {
		m := httpapi.ServerEntry{Own: ownWords(s.Condition), Member: api.Member{
			Name: s.Name, ID: s.ID, Address: s.Address, Role: "nonvoter", Leader: s.Leader, Voter: s.Voter,
			State: string(s.Gossip), IndexLag: s.IndexLag, Version: s.Version,
			ClockAhead: api.ClockOffset(s.ClockAhead.Milliseconds()), Answers: s.Answers, MemberMachine: machineOf(s),
		}, Listens: s.Listens, Claimed: !s.Member}
		if s.Voter {
			m.Role = "voter"
		}
		if s.NoVote != nil {
			m.NoVote = model.Reason(s.NoVote)
		}
		if g, ok := r.Pool().Member(string(s.ID)); ok {
			m.Gossip = g.Address
		}
		entries = append(entries, m)
	}
	return entries, nil
}

func machineOf(s cluster.ServerStatus) api.MemberMachine {
	m := api.MemberMachine{
		Disk: diskOf(s), FreeBytes: s.Condition.FreeBytes, TotalBytes: s.Condition.TotalBytes,
		Silent: model.Duration(s.Silent.Milliseconds()),
	}
	if ends := unixMilli(s.Condition.Cert.Until); !ends.IsZero() {
		ends = ends.UTC().Truncate(time.Second)
		m.CertificateEnds = &ends
	}
	return m
}

// diskOf returns the state of a server's disk. Each server spreads this state by gossip, so it is known even without a
// leader.
func diskOf(s cluster.ServerStatus) api.Disk {
	switch {
	case s.Gossip != fsm.GossipAlive && s.Gossip != fsm.GossipSuspect:
		return api.DiskUnknown
	case s.Room == cluster.RoomNone:
		return api.DiskFull
	case s.Room == cluster.RoomLow:
		return api.DiskLow
	}
	return api.DiskEnough
}

func ownWords(c cluster.Condition) httpapi.MemberOwn {
	own := httpapi.MemberOwn{
		DataDir: c.DataDir, Expect: c.Expect, Saved: unixMilli(c.SavedAt),
		Audit: c.Audit, AuditMode: c.AuditMode, SignIn: c.SignIn,
		Certificate: lifetimeOf(c.Cert), Agents: map[string]transport.Lifetime{},
	}
	for _, a := range c.Agents {
		own.Agents[a.Node] = lifetimeOf(cluster.Lifetime{From: a.From, Until: a.Until})
	}
	for _, one := range c.Copies {
		own.Copies = append(own.Copies, transport.Copy(one))
	}
	return own
}

func lifetimeOf(l cluster.Lifetime) transport.Lifetime {
	return transport.Lifetime{From: unixMilli(l.From), Until: unixMilli(l.Until)}
}

// unixMilli converts Unix milliseconds to a time. It returns the zero time for 0.
func unixMilli(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms)
}

// ownMachine returns the state of this server's machine, for the metrics.
func (s *serverPart) ownMachine() metrics.Machine {
	c := s.cluster.Condition()
	return metrics.Machine{FreeBytes: c.FreeBytes, TotalBytes: c.TotalBytes, Saved: unixMilli(c.SavedAt)}
}

// certificates returns what this server reports: the lifetimes of its own certificate and of those agents' certificates
// that should be renewed, and what fails here.
func (s *serverPart) certificates() cluster.Certificates {
	return cluster.Certificates{Own: s.creds.Lifetime(), Agents: s.listener.AgentsNearEnd(time.Now()),
		Copies: s.copies.Found(), Audit: s.auditFailing(), AuditMode: auditMode(s.p.cfg.Audit),
		SignIn: s.signing.failing()}
}
