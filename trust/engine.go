package trust

import (
	"context"
	"crypto/x509"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Store gives access to the published state of this server. fsm.Machine implements it.
type Store interface {
	// Current returns the published state. Callers must not change it.
	Current() *fsm.State
	// WatchTopic returns a channel that is closed at the next entry that touches the topic. cancel must be called when the
	// channel is no longer needed.
	WatchTopic(fsm.Topic) (woken <-chan struct{}, cancel func())
}

// Cluster is the replicated log, and what this server knows of the other servers. Its methods may be called before the
// server runs, except Submit.
type Cluster interface {
	// Submit commits one group of commands, and returns once this server has applied it. It returns the refusal of the
	// group. Other codes: no_leader, busy, disk_full and timeout if it was not committed; unknown if it may have been.
	Submit(ctx context.Context, group []fsm.Command) error
	// SubmitBy is Submit in the name of who asked for the change. The events of the change name that actor.
	SubmitBy(ctx context.Context, by model.Actor, group []fsm.Command) error
	// Leader returns who leads. self is true while this server leads. ok is false while no leader is known.
	Leader() (leader transport.ServerInfo, self, ok bool)
	// Now returns the cluster time.
	Now() model.Time
	// Includes reports whether a server with this name belongs to the configuration of the log.
	Includes(name string) bool
	// Others returns the other servers in the configuration of the log, also those that are dead. The name of a server
	// that gossip does not know is its id.
	Others() []transport.ServerInfo
	// Heard reports whether a node's agent was heard less than three heartbeat intervals ago, or may have been before this
	// server began to listen. Only the leader asks.
	Heard(id model.NodeID) bool
	// Servers returns the servers in the configuration of the log.
	Servers() []Server
	// OldestSnapshot returns the index of the oldest snapshot on this server's disk. ok is false if there is none, or if
	// one can't be read. It reads a few small files.
	OldestSnapshot() (index uint64, ok bool)
	// Addresses returns the host:port of the API and of the gossip of the servers in the configuration of the log, this
	// server's first. It leaves out servers that only gossip knows. It returns at most 32 of each.
	Addresses() (api, gossip []string)
}

// Asker sends questions to other servers. transport.PeerClient implements it.
type Asker interface {
	AskPeer(ctx context.Context, address, question string, body []byte) (answer []byte, err error)
}

// Config configures an Engine. All fields are required, except those with a default.
type Config struct {
	Name    string // of this server
	Cluster string // name of the cluster
	DataDir string // of this server, with the keyring and the directory tls
	Store   Store
	Servers Cluster
	Peers   Asker
	// Credentials are this server's. NewEngine sets their admission.
	Credentials *transport.Credentials
	// Reload makes the process use the files of the directory tls, after they have changed.
	Reload func() error
	// CloseWhere closes open connections; see transport.Listener.CloseWhere.
	CloseWhere func(func(pki.Identity, *x509.Certificate) bool) int
	// Gossip is this server's member of the gossip pool; default: it does not gossip. It is not used before Run.
	Gossip Gossip
	// Agent says that the process of the server runs an agent too.
	Agent bool
	// Lifetime is that of new certificates of servers and agents; default transport.MemberTTL.
	Lifetime time.Duration
	// JoinRefused gets the code of each join that this server refused, one of JoinRefusals. It must not block. Optional.
	JoinRefused func(model.Code)
	// Renewed is called once this server uses a certificate that it has made itself. It must not block. Optional.
	Renewed func(*x509.Certificate)
	Logger  hclog.Logger // default: nothing is logged
}

// Engine makes and checks the certificates of a cluster on one of its servers. It admits newcomers and renews the
// certificates of agents itself. Its parts do the rest, and each has only the inputs that it needs. It is safe for
// concurrent use.
type Engine struct {
	cfg     Config
	log     hclog.Logger
	dir     transport.Managed
	joining chan struct{} // has an element for each join in progress
	self    model.Subject // this server

	strangers    strangers
	repeats      strangers // repeated joins, by the id of the token, and returns, by the agent
	issuer       *issuer   // nil if the cluster makes certificates itself; see FilesEngine
	refusedJoins joinLog

	keyring  serverKeyring
	founding founding
	ca       caRotation
	gossip   gossipRotation
	rotation keyringRotation
	own      ownCertificates
	keys     ownKeys
	news     newsCache
	pins     pins
	claims   claims
}

// NewEngine opens the keyring of the data directory. If the file is missing, Run asks other servers for its keys. From
// now on the credentials refuse peers that Admit refuses. Codes: those of keyring.Open, except not_found.
func NewEngine(cfg Config) (*Engine, error) {
	e := newEngine(cfg)
	if err := e.keyring.open(); err != nil {
		return nil, err
	}
	if e.keyring.ring.Load() == nil {
		e.log.Error("the keyring is missing: until it is there, this server admits no newcomers and renews no certificates",
			"file", e.keyring.path)
	}
	cfg.Credentials.SetAdmission(e.Admit)
	cfg.Credentials.SetProved(e.Proved)
	return e, nil
}

// newEngine fills the defaults of cfg. It opens no file.
func newEngine(cfg Config) *Engine {
	if cfg.Lifetime <= 0 {
		cfg.Lifetime = transport.MemberTTL
	}
	if cfg.JoinRefused == nil {
		cfg.JoinRefused = func(model.Code) {}
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	e := &Engine{cfg: cfg, log: cfg.Logger, dir: transport.ManagedDir(cfg.DataDir),
		joining: make(chan struct{}, maxJoining), self: model.Subject{Kind: model.SubjectServer, Name: cfg.Name}}
	e.fillParts()
	return e
}

// fillParts gives each part its inputs.
func (e *Engine) fillParts() {
	cfg, log := &e.cfg, e.log
	members := memberList{servers: cfg.Servers, self: e.self, lifetime: cfg.Lifetime}
	e.keyring = serverKeyring{name: cfg.Name, path: filepath.Join(cfg.DataDir, keyring.FileName), dir: e.dir,
		store: cfg.Store, servers: cfg.Servers, peers: cfg.Peers, log: log}
	e.rotation = keyringRotation{keyring: &e.keyring}
	e.founding = founding{name: cfg.Name, dir: e.dir, store: cfg.Store, servers: cfg.Servers, peers: cfg.Peers,
		keyring: &e.keyring, handOut: e.rotation.handOut, log: log}
	e.ca = caRotation{server: cfg.Name, cluster: cfg.Cluster, store: cfg.Store, servers: cfg.Servers,
		keyring: &e.keyring, members: members, log: log}
	e.gossip = gossipRotation{store: cfg.Store, servers: cfg.Servers, keyring: &e.keyring, members: members, log: log}
	e.pins = pins{store: cfg.Store, servers: cfg.Servers, peers: cfg.Peers, record: e.record, log: log,
		shown: map[string]shownKey{}, woken: make(chan struct{}, 1)}
	e.claims = claims{store: cfg.Store, servers: cfg.Servers, peers: cfg.Peers, log: log,
		open: map[model.Subject]claim{}, told: map[model.Subject]time.Time{}, woken: make(chan struct{}, 1)}
	e.news = newsCache{store: cfg.Store, servers: cfg.Servers, keyring: &e.keyring}
	e.own = ownCertificates{cfg: cfg, self: e.self, dir: e.dir, keyring: &e.keyring, record: e.record, log: log}
	e.keys = ownKeys{self: e.self, store: cfg.Store, keyring: &e.keyring, claims: &e.claims, log: log,
		keeper: keeper{dir: e.dir, creds: cfg.Credentials, reload: cfg.Reload, gossip: cfg.Gossip}}
}

// Run does the work of every server. It blocks until ctx ends, and returns nil. Run
//   - renews the certificates of this server and of the agent of its process,
//   - makes this server use the CAs and the gossip keys of its state,
//   - has the leader record which keys members use, and which keys agents show after a recovery,
//   - ends connections of peers that Admit no longer accepts,
//   - gets a missing keyring from other servers,
//   - removes the file with the CA's key once the state has that key.
func (e *Engine) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for _, part := range [...]func(context.Context){e.closeRefused, e.closeVoid, e.founding.dropCAKey,
		e.own.keepServer, e.own.keepAgent, e.pins.keep, e.keyring.seek, e.keys.keep, e.claims.keep,
		func(ctx context.Context) { e.refusedJoins.run(ctx, e.log) }} {
		wg.Go(func() { part(ctx) })
	}
	wg.Wait()
	return nil
}

// Lead does the leader's work of one term: it puts the first keys of the cluster into the state, if this machine has
// them, and then rotates keys. It blocks until ctx ends.
func (e *Engine) Lead(ctx context.Context) {
	e.founding.run(ctx)
	var wg sync.WaitGroup
	for _, part := range [...]func(context.Context){e.ca.run, e.gossip.run} {
		wg.Go(func() { part(ctx) })
	}
	wg.Wait()
}

// Admit refuses a peer that has a good certificate and is no member of the cluster. It refuses
//   - each peer whose certificate is older than the peer's last revocation (see pki.AdmittedAt),
//   - an agent that is revoked, that has no row, or whose key is not in its row.
//
// A server or person needs no row. A server whose row is revoked is accepted with a certificate that is younger than
// the revocation: the state of this server may lack the newest admissions, if this server was off. While the state has
// no CA, Admit refuses nobody. It does not block. Codes: member_revoked, certificate_refused.
func (e *Engine) Admit(id pki.Identity, leaf *x509.Certificate) error {
	state := e.cfg.Store.Current()
	if !state.Managed() {
		return nil
	}
	who, ok := memberOf(id)
	if !ok {
		return admitPerson(state, id.Name, leaf)
	}
	return admits(state, who, leaf)
}

// admits refuses a member of a managed cluster as Admit says.
func admits(state *fsm.State, who model.Subject, leaf *x509.Certificate) error {
	row, known := state.TrustMemberOf(who)
	switch {
	case known && pki.AdmittedAt(leaf) < row.VoidBefore && !plant.Is(plant.VoidCounts):
		return revoked(who)
	case who.Kind == model.SubjectServer:
		return nil
	case known && row.RevokedIndex != 0:
		return revoked(who)
	case !known:
		return model.Refuse(model.CodeCertificateRefused, "%s is no member of the cluster", who).
			WithHint("let that machine join with a token: outspan join")
	case !row.Counts(pki.KeyHash(leaf)):
		return model.Refuse(model.CodeCertificateRefused, "the certificate of %s was replaced by a newer one", who).
			WithHint("if a copy of that machine runs, stop the copy: it has the newer one; then on a server: outspan node "+
				"revoke %s --yes; outspan token create --role agent; then on the machine that stays: outspan join "+
				"--token-file - ADDRESS", who.Name)
	}
	return nil
}

func revoked(who model.Subject) *model.Error {
	return model.Refuse(model.CodeMemberRevoked, "%s was revoked", who).
		WithHint("to use that machine again, let it join with a token: outspan join")
}

// memberOf returns the subject whose row decides about an identity. ok is false for a person.
func memberOf(id pki.Identity) (who model.Subject, ok bool) {
	switch id.Role {
	case pki.RoleServer:
		return model.Subject{Kind: model.SubjectServer, Name: id.Name}, true
	case pki.RoleAgent:
		return model.Subject{Kind: model.SubjectAgent, Name: id.Name}, true
	case pki.RoleCLI:
	}
	return model.Subject{}, false
}

// closePause is the least time between two looks at all open connections.
const closePause = 200 * time.Millisecond

// closeRefused ends the open connections that Admit refuses after a change of the members.
func (e *Engine) closeRefused(ctx context.Context) { e.closeAfter(ctx, "members") }

// closeVoid is closeRefused after a change of the people.
func (e *Engine) closeVoid(ctx context.Context) { e.closeAfter(ctx, "people") }

func (e *Engine) closeAfter(ctx context.Context, topic fsm.Topic) {
	onTopic(ctx, e.cfg.Store, topic, func() {
		n := e.cfg.CloseWhere(func(id pki.Identity, leaf *x509.Certificate) bool { return e.Admit(id, leaf) != nil })
		if n > 0 {
			e.log.Warn("connections ended whose certificates were revoked or replaced", "connections", n)
		}
		sleep(ctx, closePause)
	})
}

// onTopic calls f at once, and again after each change of the topic, until ctx ends. Changes during a call of f lead to
// one further call.
func onTopic(ctx context.Context, store Store, topic fsm.Topic, f func()) {
	for ctx.Err() == nil {
		woken, cancel := store.WatchTopic(topic)
		f()
		select {
		case <-woken:
		case <-ctx.Done():
		}
		cancel()
	}
}
