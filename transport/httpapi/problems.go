package httpapi

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// ProblemCodes returns the codes of all problems, in the order in which the status shows them.
func ProblemCodes() []api.ProblemCode {
	return []api.ProblemCode{
		api.ProblemNoLeader, api.ProblemServerSilent, api.ProblemServerDisk, api.ProblemServerClock,
		api.ProblemServerCertificate, api.ProblemVoters,
		api.ProblemStateDiffers, api.ProblemHold, api.ProblemRestore, api.ProblemPaused, api.ProblemNodeOffline,
		api.ProblemNodeUnreachable,
		api.ProblemNodeDegraded, api.ProblemNodeCertificate, api.ProblemNodeFormat, api.ProblemPort,
		api.ProblemRuntime, api.ProblemImageGone,
		api.ProblemDrainBlocked, api.ProblemDrainFailed,
		api.ProblemDeployment, api.ProblemRetryLimit, api.ProblemCrashLoop, api.ProblemUnplaced,
		api.ProblemInstanceDisk, api.ProblemBackup, api.ProblemNoVote, api.ProblemKeyring, api.ProblemNewcomerWaiting,
		api.ProblemGossipRotation, api.ProblemCARotation, api.ProblemNodeTwice, api.ProblemCACertificate,
		api.ProblemAudit, api.ProblemAuditDiffers, api.ProblemProvider,
	}
}

const (
	problemRows    = 8                  // rows per code; more problems are only counted
	serverPatience = 5 * model.Second   // a server that has not answered for this long is a problem
	clockPatience  = 2 * model.Second   // a clock that is wrong by more than this is a problem
	backupAge      = 7 * 24 * time.Hour // a state that was last saved longer ago than this is a problem
	caPatience     = 365 * 24 * time.Hour
	littleDisk     = 2 << 30 // bytes; a disk is nearly full if less than this and less than a twentieth is free
)

// problems collects the problems that the status shows.
type problems struct {
	r         *reading
	members   []ServerEntry
	differing []api.DifferentState
	led       bool // a leader is known
	leads     bool // this server leads

	found map[api.ProblemCode][]api.ProblemRow
}

// problems finds all current problems. It uses only what this server already knows, and asks no other process. A server
// that does not lead misses the problems that only the leader knows.
func (s *Server) problems(r *reading, members []ServerEntry, differing []api.DifferentState) *problems {
	_, leads, led := s.cfg.Consensus.Leader()
	p := &problems{r: r, members: members, differing: differing, led: led, leads: leads,
		found: map[api.ProblemCode][]api.ProblemRow{}}
	p.cluster()
	for i := range members {
		p.server(&members[i])
	}
	p.voters()
	p.nodes()
	p.ports()
	p.disks()
	p.drains()
	p.jobs()
	p.agents()
	p.copies()
	p.authority()
	p.formats(s.cfg.Format)
	p.backup()
	p.keyring()
	p.newcomers()
	p.gossip(s.cfg.Gossip)
	p.caRotation(s.cfg.CA)
	return p
}

// ProblemCounts returns the number of current problems by code. It asks no other process. While instances are missing
// or a drain runs, it costs as much as one decision.
func (s *Server) ProblemCounts() map[api.ProblemCode]int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	members, _ := s.members(ctx) // after an error, the problems of servers are missing
	counts := map[api.ProblemCode]int{}
	for code, rows := range s.problems(s.reading(), members, s.differing()).found {
		counts[code] = len(rows)
	}
	return counts
}

// rows returns the problems in order. For each code it returns at most problemRows problems, and one more row with the
// number of omitted problems.
func (p *problems) rows() []api.ProblemRow {
	rows := []api.ProblemRow{}
	for _, code := range ProblemCodes() {
		of := p.found[code]
		slices.SortStableFunc(of, func(a, b api.ProblemRow) int { return strings.Compare(a.Subject, b.Subject) })
		if more := len(of) - problemRows; more > 0 {
			kind, _, _ := strings.Cut(of[0].Subject, "/")
			rest := api.ProblemRow{
				Code: code, Subject: kind + "s", Message: fmt.Sprintf("%d more like these", more), Next: "outspan node ls",
			}
			switch code {
			case api.ProblemInstanceDisk:
				rest.Next = "outspan events --type instance.disk_changed"
			case api.ProblemNewcomerWaiting:
				rest.Next = "outspan token waiting"
			case api.ProblemPort:
				rest.Next = "outspan events --type node.port_changed"
			case api.ProblemDrainBlocked:
				rest.Next = "outspan drain ls"
			case api.ProblemDeployment, api.ProblemImageGone, api.ProblemRetryLimit, api.ProblemCrashLoop, api.ProblemUnplaced:
				rest.Next = "outspan job ls"
			}
			of = append(of[:problemRows:problemRows], rest)
		}
		rows = append(rows, of...)
	}
	return rows
}

func (p *problems) add(code api.ProblemCode, subject, next, format string, args ...any) {
	row := api.ProblemRow{Code: code, Subject: subject, Message: fmt.Sprintf(format, args...), Next: next}
	p.found[code] = append(p.found[code], row)
}

// cluster adds the problems of the cluster as a whole, and the servers whose state differs from this server's.
func (p *problems) cluster() {
	const all = "cluster"
	if !p.led {
		p.add(api.ProblemNoLeader, all,
			"start the servers that are down; see: outspan server members; if a majority is gone for good, on one that is "+
				"left: outspan server recover",
			"no server leads: nothing is placed, drained or replaced, and what runs goes on")
	}
	if h := p.r.Hold; h.Active {
		p.add(api.ProblemHold, all, "look at the network first; to end it by hand: outspan settings resume hold",
			"HOLD: too many nodes are away at once, so nothing is rescheduled: %s", h.Reason)
	}
	if p.r.Unconfirmed {
		p.add(api.ProblemRestore, all, "outspan settings resume restore --dry-run, then: outspan settings resume restore",
			"a snapshot was restored, or a server recovered: agents stop nothing that the servers don't know")
	}
	if p.r.Settings.Paused {
		p.add(api.ProblemPaused, all, "outspan settings resume pause",
			"actuation is paused: decisions are computed and shown, none is carried out")
	}
	p.auditDiffers()
	for _, d := range p.differing {
		p.add(api.ProblemStateDiffers, "server/"+d.Name, "outspan server verify",
			"it had another state than this server at index %d", d.Index)
	}
}

// server adds the problems of one server: it does not answer, its disk is full or nearly full, its clock is wrong, it
// gets no vote, or its certificate is near its end.
func (p *problems) server(m *ServerEntry) {
	const setClock = "on it: chronyc makestep"
	subject, now := "server/"+m.Name, p.r.wall
	switch {
	case p.silent(m) && !m.Voter && p.revoked(m.Name): // gossip shows it for some time after it was removed
	case p.silent(m):
		p.add(api.ProblemServerSilent, subject, p.silentServerAdvice(m), "it does not answer")
	case m.Disk == api.DiskFull:
		p.add(api.ProblemServerDisk, subject, lookAtDisk(m), "its disk is full, %s: it takes no new entries", diskText(m))
	case m.Disk == api.DiskLow, m.TotalBytes > 0 && m.FreeBytes < min(littleDisk, m.TotalBytes/20):
		p.add(api.ProblemServerDisk, subject, lookAtDisk(m), "its disk is nearly full, %s", diskText(m))
	}
	switch {
	case model.Duration(m.ClockAhead) > clockPatience:
		p.add(api.ProblemServerClock, subject, setClock, "its clock is %s ahead of the others'",
			seconds(model.Duration(m.ClockAhead)))
	case model.Duration(m.ClockAhead) < -clockPatience:
		p.add(api.ProblemServerClock, subject, setClock, "its clock is %s behind the others'",
			seconds(-model.Duration(m.ClockAhead)))
	}
	if m.NoVote != "" {
		p.add(api.ProblemNoVote, subject, "look at its log; see: outspan server keyring ls", "it gets no vote: %s", m.NoVote)
	}
	p.ownWords(m)
	if m.Own.Certificate.NearEnd(now) {
		p.add(api.ProblemServerCertificate, subject, p.renewal(model.SubjectServer, m.Name), "%s",
			ending(m.Own.Certificate, now))
	}
}

// silent reports whether a server does not answer. Only the leader knows for how long a server has not answered; other
// servers know only what gossip says.
func (p *problems) silent(m *ServerEntry) bool {
	switch fsm.Gossip(m.State) {
	case fsm.GossipAlive, fsm.GossipSuspect:
		return m.Silent > serverPatience
	case fsm.GossipUnknown:
		return m.Silent > serverPatience || !p.led
	}
	return true
}

// silentServerAdvice returns what to do about a server that does not answer. Without a leader no server can be removed,
// so the advice is only to start it.
func (p *problems) silentServerAdvice(m *ServerEntry) string {
	if !p.led {
		return "start it again"
	}
	return "start it again; gone for good: outspan server remove " + string(m.ID)
}

// voters adds a problem if fewer servers vote than bootstrap_expect says, or if only two vote.
func (p *problems) voters() {
	voters, expect := 0, 0
	for _, m := range p.members {
		if m.Voter {
			voters++
		}
		expect = max(expect, m.Own.Expect)
	}
	const next = "start a server with an empty data_dir, or lower bootstrap_expect; see: outspan server members"
	switch {
	case voters == 0:
	case voters < expect:
		p.add(api.ProblemVoters, "cluster", next, "%d of the servers vote, and bootstrap_expect is %d", voters, expect)
	case voters == 2:
		p.add(api.ProblemVoters, "cluster", next, "2 servers vote: the cluster stops when one of them fails")
	}
}

func (p *problems) nodes() {
	for _, n := range p.r.Nodes.All() {
		subject := "node/" + n.Name
		switch {
		case n.Intent == model.IntentDisabled:
		case n.Health == model.HealthOffline && n.Return.ConfirmedDead:
			p.add(api.ProblemNodeOffline, subject, "outspan node forget "+n.Name, "it is offline and confirmed dead")
		case n.Health == model.HealthOffline:
			p.add(api.ProblemNodeOffline, subject, "start it; gone for good: outspan node confirm-dead "+n.Name,
				"it is offline: nobody hears it")
		case n.Health == model.HealthUnreachable:
			p.add(api.ProblemNodeUnreachable, subject,
				"look at its agent's log, certificate and list of servers; see: outspan node status "+n.Name,
				"its heartbeats arrive, but its agent gets no answers from the servers")
		case n.Troubled():
			p.add(api.ProblemNodeDegraded, subject, "outspan node status "+n.Name, "%s", n.Self.Words())
		case n.Health == model.HealthDegraded:
			p.add(api.ProblemNodeDegraded, subject, "outspan node status "+n.Name, "other machines can't reach it")
		}
		if x := n.Self.Runtime; x != nil && x.Down != "" && n.Intent != model.IntentDisabled &&
			n.Health != model.HealthOffline {
			p.add(api.ProblemRuntime, subject, model.MendRuntime(n.Name, x.Down),
				"it takes no new containers, and those that run go on: %s", x.Down)
		}
	}
}

// agents adds the agents' certificates near their end. If servers saw different certificates of an agent, it uses the
// certificate that ends last. An agent that was seen with an old certificate may have shown a newer one to a server
// that was restarted since, so in a managed cluster the row of the agent counts too, once the agent has its newest
// certificate. For a revoked agent there is nothing to renew.
func (p *problems) agents() {
	newest := map[string]transport.Lifetime{}
	for _, m := range p.members {
		for node, life := range m.Own.Agents {
			if life.Until.After(newest[node].Until) {
				newest[node] = life
			}
		}
	}
	for _, n := range p.r.Nodes.All() {
		if m, ok := p.r.TrustMemberOf(model.Subject{Kind: model.SubjectAgent, Name: n.Name}); ok {
			end := time.UnixMilli(m.NotAfter)
			switch {
			case m.RevokedIndex != 0:
				continue
			case len(m.PreviousKey) == 0 && end.After(newest[n.Name].Until):
				newest[n.Name] = transport.Lifetime{From: end.Add(-transport.MemberTTL), Until: end}
			}
		}
		if life := newest[n.Name]; life.NearEnd(p.r.wall) {
			p.add(api.ProblemNodeCertificate, "node/"+n.Name, p.renewal(model.SubjectAgent, n.Name), "%s",
				ending(life, p.r.wall))
		}
	}
}

// authority adds the CA of a managed cluster if less than a third of its life and less than caPatience is left. The
// certificates of members never outlast it.
func (p *problems) authority() {
	key, ok := p.r.ActiveKey(model.KeyCA)
	if !ok {
		return
	}
	root, err := x509.ParseCertificate(key.Public)
	if err != nil {
		return // the servers log that, because they can't issue certificates
	}
	life := transport.LifetimeOf(root)
	if left := life.Until.Sub(p.r.wall); left < min(caPatience, life.Until.Sub(life.From)/3) {
		p.add(api.ProblemCACertificate, "cluster", "replace the CA before that; see docs/operations.md",
			"the CA: %s, and no certificate of a member is longer valid", ending(life, p.r.wall))
	}
}

// copies adds the nodes whose identity two machines use. More than one server may have seen them.
func (p *problems) copies() {
	told := map[string]bool{}
	for _, m := range p.members {
		for _, c := range m.Own.Copies {
			if _, known := p.r.NodeCalled(c.Node); !known || told[c.Node] {
				continue
			}
			told[c.Node] = true
			next := fmt.Sprintf("stop the copy, and give it an empty data_dir and another name; then on a server: outspan node "+
				"revoke %s --yes; outspan token create --role agent; then on the machine that stays: outspan join "+
				"--token-file - ADDRESS", c.Node)
			if !p.r.Managed() {
				next = "stop the copy, and give it an empty data_dir, another name and a certificate of its own"
			}
			p.add(api.ProblemNodeTwice, "node/"+c.Node, next, "two machines use its identity: one at %s, another at %s",
				c.First, c.Second)
		}
	}
}

// formats adds the nodes whose agents can't read the newest format, and so keep the cluster at an older format.
func (p *problems) formats(newest uint16) {
	for _, n := range p.r.Nodes.All() {
		if p.r.Format < newest && n.HoldsBack(newest) {
			next := fmt.Sprintf("upgrade its agent; to go on without it: outspan node drain %s, then: outspan node disable %s",
				n.Name, n.Name)
			p.add(api.ProblemNodeFormat, "node/"+n.Name, next,
				"its agent %s reads formats up to %d: the cluster keeps to format %d until it is upgraded",
				agentVersion(n), n.Agent.Reads(), p.r.Format)
		}
	}
}

func agentVersion(n *fsm.Node) string { return "(version " + cmp.Or(n.Agent.Version, "unknown") + ")" }

// backup adds a problem if the state was last saved more than backupAge ago, or was never saved and the cluster is
// older than backupAge.
func (p *problems) backup() {
	var saved time.Time
	for _, m := range p.members {
		if m.Own.Saved.After(saved) {
			saved = m.Own.Saved
		}
	}
	const next = "outspan server snapshot save FILE"
	switch {
	case !saved.IsZero() && p.r.wall.Sub(saved) > backupAge:
		p.add(api.ProblemBackup, "cluster", next, "the state was last saved %d days ago", days(p.r.wall.Sub(saved)))
	case saved.IsZero() && p.led && p.old():
		p.add(api.ProblemBackup, "cluster", next, "no server knows that the state was ever saved")
	}
}

// old reports whether the cluster is older than backupAge.
func (p *problems) old() bool {
	id, err := ulid.ParseStrict(p.r.Cluster.ID)
	return err == nil && p.r.wall.Sub(ulid.Time(id.Time())) > backupAge
}

func ending(l transport.Lifetime, now time.Time) string {
	if left := l.Until.Sub(now); left > 0 {
		return fmt.Sprintf("its certificate ends in %s (%s)", lengthText(left), stampOf(l.Until))
	}
	return "its certificate ended at " + stampOf(l.Until)
}

// renewal returns how the certificate of a server or agent gets renewed. In a managed cluster both renew themselves, so
// the advice is where to see why that has failed.
func (p *problems) renewal(role model.SubjectKind, name string) string {
	switch {
	case p.r.Managed() && role == model.SubjectServer:
		return "it renews its certificate itself: its log says why it has not"
	case p.r.Managed():
		return "it renews its certificate itself: its log says why it has not; if it does not return by itself once the " +
			"certificate has ended, on it: outspan join --token-file FILE ADDRESS, with a token of: outspan token create " +
			"--role agent"
	}
	if isMember(&p.r.State, model.Subject{Kind: role, Name: name}) {
		return "on it: outspan join --token-file FILE ADDRESS, with a token of: outspan token create --role " + string(role)
	}
	return fmt.Sprintf("outspan tls cert create --%s %s --force, copy it there, then: systemctl reload outspan-%s",
		role, name, role)
}

func lengthText(d time.Duration) string {
	if n := days(d); n > 1 {
		return fmt.Sprintf("%d days", n)
	}
	return d.Round(time.Minute).String()
}

func days(d time.Duration) int { return int(d / (24 * time.Hour)) }

func stampOf(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// seconds drops fractions of a second.
func seconds(d model.Duration) model.Duration { return d / model.Second * model.Second }
