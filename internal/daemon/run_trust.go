package daemon

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/agent"
	"github.com/outspan/outspan/cluster"
	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/series"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

// openTrust opens the engine that answers newcomers. With tls { managed = true } it refuses revoked peers from now on,
// so it is opened before raft begins to call other servers.
func (s *serverPart) openTrust() (err error) {
	cfg := trust.Config{
		Name: s.p.cfg.Name, Cluster: s.p.cfg.Cluster, DataDir: s.p.cfg.DataDir,
		Store: s.machine, Servers: trustCluster{s}, Peers: s.peers,
		Credentials: s.creds, Reload: s.creds.Reload, CloseWhere: s.listener.CloseWhere,
		Gossip: serverGossip{s},
		Agent:  s.p.cfg.Agent != nil, JoinRefused: s.joins.count, Renewed: s.auditRenewal,
		Logger: s.p.log.Named("trust"),
	}
	if !s.p.cfg.TLS.Managed {
		s.files = trust.NewFilesEngine(cfg, strings.TrimPrefix(s.p.cfg.TLS.Issue, config.IssueProgram))
		return nil
	}
	s.trust, err = trust.NewEngine(cfg)
	return err
}

// revive renews certificates that expired while this server was off. If the server's is not valid yet, the clock is
// behind, and the server starts with it all the same: it is good as soon as the clock is right.
func (p *process) revive(ctx context.Context) (err error) {
	if !p.cfg.TLS.Managed {
		return nil
	}
	p.revived, err = trust.Revive(ctx, trust.Revival{
		Name: p.cfg.Name, Agent: p.cfg.Agent != nil, DataDir: p.cfg.DataDir, Logger: p.log.Named("trust"),
		State: func(ctx context.Context) (fsm.State, error) { return stoppedState(ctx, p.cfg.DataDir) }})
	if err != nil {
		return err
	}
	if pair, found, err := transport.ManagedDir(p.cfg.DataDir).Pair(pki.RoleServer); err == nil && found {
		now, from := time.Now(), pair.Leaf.NotBefore
		if p.early = now.Before(from); p.early {
			p.log.Warn("the clock of this machine is behind: it is before the beginning of this server's certificate",
				"clock", pki.Stamp(now), "certificate_begins", pki.Stamp(from), "behind", from.Sub(now).Round(time.Second))
		}
	}
	return nil
}

// noBegin returns why this server must not begin a cluster if it has no state. It has certificates of a cluster, and
// only a machine on which outspan up has run has the CA's key, until the state has that.
func (p *process) noBegin() error {
	dir := transport.ManagedDir(p.cfg.DataDir)
	if _, err := os.Lstat(dir.CAKeyFile()); err == nil || !p.cfg.TLS.Managed {
		return nil
	}
	return cluster.NoSecondCluster(p.cfg.DataDir, dir.Path()+" has certificates of a cluster")
}

// stoppedState reads the newest state in the data directory of a server that is not running. The last entries of the
// log may be uncommitted.
func stoppedState(ctx context.Context, dataDir string) (_ fsm.State, err error) {
	dir, err := cluster.OpenStopped(dataDir)
	if err != nil {
		return fsm.State{}, err
	}
	defer func() { err = errors.Join(err, dir.Close()) }()
	replay, err := dir.Replay(ctx, 0)
	return replay.State, err
}

// joinAnswers returns what answers newcomers. s.trust and s.files are opened later, but before the listener runs.
func (s *serverPart) joinAnswers() transport.AnswerJoin {
	return s.auditJoins(func(ctx context.Context, source net.Addr, r transport.JoinRequest) (transport.JoinReply, error) {
		if s.trust == nil {
			return s.files.AnswerJoin(ctx, source, r)
		}
		return s.trust.AnswerJoin(ctx, source, r)
	})
}

// trustCluster is the trust.Cluster of a server.
type trustCluster struct{ s *serverPart }

// Submit implements trust.Cluster.
func (t trustCluster) Submit(ctx context.Context, group []fsm.Command) error {
	return t.SubmitBy(ctx, model.ActorLeader, group)
}

// SubmitBy implements trust.Cluster.
func (t trustCluster) SubmitBy(ctx context.Context, by model.Actor, group []fsm.Command) error {
	results, err := t.s.cluster.Propose(ctx, fsm.Entry{Actor: by, Groups: [][]fsm.Command{group}})
	if err != nil {
		return err
	}
	if refusal := results[0].Refusal; refusal != nil {
		return refusal
	}
	return nil
}

// Leader implements trust.Cluster.
func (t trustCluster) Leader() (leader transport.ServerInfo, self, ok bool) {
	return t.s.cluster.Leader()
}

// Now implements trust.Cluster.
func (t trustCluster) Now() model.Time { return t.s.cluster.Now() }

// Includes implements trust.Cluster.
func (t trustCluster) Includes(name string) bool {
	return slices.ContainsFunc(t.s.cluster.Servers(), func(one cluster.ServerStatus) bool {
		return one.Member && one.Name == name
	})
}

// Others implements trust.Cluster.
func (t trustCluster) Others() (others []transport.ServerInfo) {
	for _, one := range t.s.cluster.Servers() {
		if one.Member && one.ID != t.s.cluster.ID() {
			others = append(others, transport.ServerInfo{ID: one.ID, Name: one.Name, APIAddress: one.Address})
		}
	}
	return others
}

// OldestSnapshot implements trust.Cluster.
func (t trustCluster) OldestSnapshot() (index uint64, ok bool) {
	for i, one := range cluster.SnapshotsIn(t.s.p.cfg.DataDir) {
		if one.Err != nil {
			return 0, false
		}
		if i == 0 || one.Index < index {
			index, ok = one.Index, true
		}
	}
	return index, ok
}

// mayVote returns what refuses votes to servers that lack keys, or nil if the cluster issues no certificates.
func (s *serverPart) mayVote() func(ctx context.Context, name, address string) error {
	if s.trust == nil {
		return nil
	}
	return s.trust.MayVote
}

// Heard implements trust.Cluster.
func (t trustCluster) Heard(id model.NodeID) bool {
	live, ok := t.s.cluster.LiveOf(id)
	return ok && live.Age <= 3*fsm.HeartbeatInterval(t.s.machine.Current().Settings.OfflineAfter)
}

// Servers implements trust.Cluster.
func (t trustCluster) Servers() (all []trust.Server) {
	for _, one := range t.s.cluster.Servers() {
		if one.Member {
			all = append(all, trust.Server{Name: cmp.Or(one.Name, string(one.ID)), ID: string(one.ID), Answers: one.Answers,
				Silent: one.Silent})
		}
	}
	return all
}

// Addresses implements trust.Cluster.
func (t trustCluster) Addresses() (api, gossip []string) {
	return addressesOf(t.s.cluster.Servers(), t.s.cluster.ID(), func(id model.ServerID) string {
		g, _ := t.s.cluster.Pool().Member(string(id))
		return g.Address
	})
}

// maxAddresses is how many servers a newcomer or agent is told. More than a few servers are never useful.
const maxAddresses = 32

// addressesOf returns the addresses of the servers in the log's configuration, this server's first. Whoever has the
// gossip key can make gossip show any number of other servers.
func addressesOf(servers []cluster.ServerStatus, own model.ServerID,
	gossipOf func(model.ServerID) string) (api, gossip []string) {
	members := slices.DeleteFunc(slices.Clone(servers), func(one cluster.ServerStatus) bool { return !one.Member })
	slices.SortStableFunc(members, func(a, b cluster.ServerStatus) int {
		switch own {
		case a.ID:
			return -1
		case b.ID:
			return 1
		}
		return 0
	})
	for _, one := range members[:min(len(members), maxAddresses)] {
		if one.Address != "" {
			api = append(api, one.Address)
		}
		if address := gossipOf(one.ID); address != "" {
			gossip = append(gossip, address)
		}
	}
	return api, gossip
}

// peerAnswers answers the questions of other servers.
type peerAnswers struct {
	*cluster.Server
	series *series.Recorder
	trust  func(ctx context.Context, question string, body []byte) (answer []byte, known bool, err error)
}

func (s *serverPart) peerAnswers() peerAnswers {
	if s.trust == nil {
		return peerAnswers{s.cluster, s.series, s.files.AnswerPeer}
	}
	return peerAnswers{s.cluster, s.series, s.trust.AnswerPeer}
}

// AnswerPeer implements httpapi.Peers.
func (p peerAnswers) AnswerPeer(ctx context.Context, question string, body []byte) ([]byte, error) {
	if answer, known, err := p.trust(ctx, question, body); known {
		return answer, err
	}
	if answer, known, err := p.series.AnswerPeer(question, body); known {
		return answer, err
	}
	return p.Server.AnswerPeer(ctx, question, body)
}

// useFiles makes the agent use the certificate in its files. The servers may have refused the one before, and with it
// the registration of the node.
func (a *agentPart) useFiles() error {
	err := a.creds.Reload()
	if err == nil {
		a.agent.RegisterAgain()
	}
	return err
}

// renewal returns what renews the agent's certificate, or nil if the cluster issues no certificates.
func (a *agentPart) renewal() func(context.Context) error {
	if !a.p.cfg.TLS.Managed {
		return nil
	}
	work := trust.Agent{Name: a.p.cfg.Name, Dir: transport.ManagedDir(a.p.cfg.DataDir), Credentials: a.creds,
		Reload: a.useFiles, Renew: a.registrar().Renew, Logger: a.p.log.Named("trust")}
	if a.p.cfg.Server == nil { // otherwise the server of this process renews an expired certificate
		work.Rejoin = a.rejoin
	}
	return work.Run
}

// rejoin asks all servers that the agent knows for the next certificate, when that of the agent has expired.
func (a *agentPart) rejoin(ctx context.Context, old tls.Certificate, request []byte) (transport.RenewReply, error) {
	roots, err := transport.ManagedDir(a.p.cfg.DataDir).Roots()
	if err != nil {
		return transport.RenewReply{}, err
	}
	var servers []string
	for _, one := range a.client.Servers() {
		servers = append(servers, one.Host)
	}
	return transport.Rejoin(ctx, servers, roots, old,
		transport.RejoinRequest{Request: request, Boot: a.agent.Identity().BootID})
}

// openFollower makes the agent learn what the cluster trusts, if the cluster issues certificates. From now on the agent
// refuses peers of which it knows that they were revoked.
func (a *agentPart) openFollower() {
	if !a.p.cfg.TLS.Managed {
		return
	}
	known := agent.KnownServers(a.dataDir())
	a.follower = trust.NewFollower(trust.FollowerConfig{
		Name: a.p.cfg.Name, Dir: transport.ManagedDir(a.p.cfg.DataDir), Credentials: a.creds,
		Reload: a.creds.Reload, CloseWhere: a.listener.CloseWhere, Gossip: a.gossip, Ask: a.client.Trust,
		Servers: func(servers []string) { a.client.Follow(slices.Concat(servers, known)) },
		Follows: a.agent.Follows, Logger: a.p.log.Named("trust"),
	})
}

// serverGossip is the trust.Gossip of a server, whose pool is opened later than its trust.Engine.
type serverGossip struct{ s *serverPart }

// SetKeys implements trust.Gossip.
func (g serverGossip) SetKeys(keys [][]byte) error { return g.s.cluster.Pool().SetKeys(keys) }

// Keys implements trust.Gossip.
func (g serverGossip) Keys() [][]byte { return g.s.cluster.Pool().Keys() }
