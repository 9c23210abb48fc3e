package trust_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"go.uber.org/goleak"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/trust"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// codeOf returns the code of a refusal, or "".
func codeOf(err error) model.Code {
	if refusal, ok := errors.AsType[*model.Error](err); ok {
		return refusal.Code
	}
	return ""
}

func wantCode(t testing.TB, err error, code model.Code) {
	t.Helper()
	if err == nil || codeOf(err) != code {
		t.Fatalf("got error %v, want code %s", err, code)
	}
}

// eventually calls ok until it returns true, and fails the test after 15 s.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen in 15 s", what)
		}
	}
}

// rig is a cluster whose log is a list: an entry is applied on all servers at once. The states, the files and the keys
// are real.
type rig struct {
	t      testing.TB
	mu     sync.Mutex
	log    []fsm.Entry
	sites  map[string]*site
	leader string // name of the server that leads; "" means nobody does

	off map[string]time.Time // servers of the log's configuration that are off, and since when

	ids map[string]string // of servers, by their names; default: the name

	wall func() time.Time // the median of the servers' clocks, which entries have; default: they have none

	addresses []string // of the servers' API; default 10.0.0.1:7640
	dead      []string // names of servers in the configuration that don't answer

	// lost is called with each question between servers. Its error is that of the question. Optional.
	lost  func(to, question string) error
	heard map[model.NodeID]bool

	oldest map[string]uint64 // index of the oldest snapshot of a server; a server that is missing has none

	engine func(*trust.Config) // changes the configuration of engines that start; optional

	// before and after are called around the commit of an entry. Their errors are those of Submit.
	before, after func() error
}

// site is one server of a rig. Its directory survives a restart.
type site struct {
	r       *rig
	name    string
	dir     string
	machine *fsm.Machine
	creds   *transport.Credentials
	engine  *trust.Engine
	cfg     trust.Config // of the engine
	reloads int
	renewed int // certificates that this server has made itself
	asked   int // questions to other servers
	closed  func(func(pki.Identity, *x509.Certificate) bool) int
	gossip  *fakeGossip
}

func newRig(t testing.TB) *rig { return &rig{t: t, sites: map[string]*site{}} }

// found makes the files of the first machine, as outspan up does, and starts its server. It leads.
func (r *rig) found(lifetime time.Duration) *site {
	r.t.Helper()
	dir := r.t.TempDir()
	ca := must(transport.NewAuthority("c1", 0))(r.t)
	files := transport.ManagedFiles{CA: ca, GossipKeys: [][]byte{transport.NewGossipKey()},
		Pairs: map[pki.Role]tls.Certificate{}}
	for _, role := range []pki.Role{pki.RoleServer, pki.RoleAgent} {
		cert, key, err := ca.Issue(transport.CertRequest{Role: role, Name: "s1", Hosts: []string{"10.0.0.1"}, TTL: lifetime})
		if err != nil {
			r.t.Fatal(err)
		}
		files.Pairs[role] = must(tls.X509KeyPair(cert, key))(r.t)
	}
	if err := transport.ManagedDir(dir).Write(files); err != nil {
		r.t.Fatal(err)
	}
	must(keyring.Create(filepath.Join(dir, keyring.FileName)))(r.t)
	r.leader = "s1"
	return r.start("s1", dir, lifetime)
}

// start starts a server on a directory. It has applied the whole log.
func (r *rig) start(name, dir string, lifetime time.Duration) *site {
	r.t.Helper()
	s := &site{r: r, name: name, dir: dir, machine: fsm.NewMachine(),
		closed: func(func(pki.Identity, *x509.Certificate) bool) int { return 0 }}
	s.creds = must(transport.ManagedDir(dir).CredentialsAnyTime("c1", pki.RoleServer, name))(r.t)
	s.gossip = newFakeGossip(r.t, dir)
	r.mu.Lock()
	for i, e := range r.log {
		s.apply(i, e)
	}
	r.sites[name] = s
	r.mu.Unlock()
	cfg := trust.Config{Name: name, Cluster: "c1", DataDir: dir, Store: s.machine, Servers: s, Peers: s,
		Credentials: s.creds, Agent: true, Gossip: s.gossip, Lifetime: lifetime, Logger: hclog.NewNullLogger(),
		Renewed: func(*x509.Certificate) { s.renewed++ }, Reload: func() error { s.reloads++; return s.creds.Reload() },
		CloseWhere: func(f func(pki.Identity, *x509.Certificate) bool) int { return s.closed(f) },
	}
	if r.engine != nil {
		r.engine(&cfg)
	}
	s.cfg = cfg
	s.engine = must(trust.NewEngine(cfg))(r.t)
	return s
}

// stop keeps further entries from a server.
func (r *rig) stop(s *site) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sites, s.name)
}

func (s *site) apply(i int, e fsm.Entry) []fsm.Result {
	data := must(fsm.EncodeEntry(e))(s.r.t)
	return must(s.machine.Apply(uint64(i)+1, 1, data))(s.r.t)
}

// Submit implements trust.Cluster.
func (s *site) Submit(ctx context.Context, group []fsm.Command) error {
	return s.SubmitBy(ctx, model.ActorLeader, group)
}

// SubmitBy implements trust.Cluster.
func (s *site) SubmitBy(_ context.Context, by model.Actor, group []fsm.Command) error {
	r := s.r
	if r.before != nil {
		if err := r.before(); err != nil {
			return err
		}
	}
	r.mu.Lock()
	e := fsm.Entry{Format: model.CurrentFormat, At: s.Now(), Actor: by, Groups: [][]fsm.Command{group}}
	if r.wall != nil {
		e.Wall = r.wall().UnixMilli()
	}
	r.log = append(r.log, e)
	var results []fsm.Result
	for _, one := range r.sites {
		results = one.apply(len(r.log)-1, e)
	}
	r.mu.Unlock()
	if r.after != nil {
		if err := r.after(); err != nil {
			return err
		}
	}
	if refusal := results[0].Refusal; refusal != nil {
		return refusal
	}
	return nil
}

// Leader implements trust.Cluster.
func (s *site) Leader() (leader transport.ServerInfo, self, ok bool) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return transport.ServerInfo{Name: s.r.leader, APIAddress: s.r.leader}, s.r.leader == s.name, s.r.leader != ""
}

// Now implements trust.Cluster.
func (s *site) Now() model.Time { return model.Time(time.Now().UnixMilli()) }

// Includes implements trust.Cluster.
func (s *site) Includes(name string) bool {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.r.sites[name] != nil
}

// OldestSnapshot implements trust.Cluster.
func (s *site) OldestSnapshot() (index uint64, ok bool) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	index, ok = s.r.oldest[s.name]
	return index, ok
}

// Others implements trust.Cluster. The id and the address of a server are its name.
func (s *site) Others() (others []transport.ServerInfo) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for _, name := range append(slices.Sorted(maps.Keys(s.r.sites)), s.r.dead...) {
		if name != s.name {
			others = append(others, transport.ServerInfo{ID: model.ServerID(name), Name: name, APIAddress: name})
		}
	}
	return others
}

// Heard implements trust.Cluster.
func (s *site) Heard(id model.NodeID) bool {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	return s.r.heard[id]
}

// Servers implements trust.Cluster.
func (s *site) Servers() (all []trust.Server) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	for name := range s.r.sites {
		all = append(all, trust.Server{Name: name, Answers: true})
	}
	for name, since := range s.r.off {
		all = append(all, trust.Server{Name: name, Silent: time.Since(since)})
	}
	for i := range all {
		all[i].ID = cmp.Or(s.r.ids[all[i].Name], all[i].Name)
	}
	slices.SortFunc(all, func(a, b trust.Server) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Addresses implements trust.Cluster.
func (s *site) Addresses() (api, gossip []string) {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	if s.r.addresses != nil {
		return slices.Clone(s.r.addresses), nil
	}
	return []string{"10.0.0.1:7640"}, []string{"10.0.0.1:7641"}
}

// AskPeer implements trust.Asker: it hands the question to the engine of the server that has the address. Other
// addresses never answer.
func (s *site) AskPeer(ctx context.Context, address, question string, body []byte) ([]byte, error) {
	s.r.mu.Lock()
	to := s.r.sites[address]
	s.asked++
	lost := s.r.lost
	s.r.mu.Unlock()
	if lost != nil {
		if err := lost(address, question); err != nil {
			return nil, err
		}
	}
	if to == nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	ctx = transport.WithSubject(ctx, model.Subject{Kind: model.SubjectServer, Name: s.name})
	answer, known, err := to.engine.AnswerPeer(ctx, question, body)
	if !known {
		s.r.t.Errorf("%s does not know %s", address, question)
	}
	return answer, err
}

func (s *site) do(group ...fsm.Command) {
	s.r.t.Helper()
	if err := s.Submit(s.r.t.Context(), group); err != nil {
		s.r.t.Fatal(err)
	}
}

// lead runs the engine's work of a leader until the state has the first keys.
func (s *site) lead() {
	s.r.t.Helper()
	stop := s.leading()
	defer stop()
	eventually(s.r.t, "the state has a CA", func() bool { return s.machine.Current().Managed() })
}

// leading runs the engine's work of a leader until the returned function is called, or the test ends.
func (s *site) leading() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.engine.Lead(ctx) }()
	stop = func() { cancel(); <-done }
	s.r.t.Cleanup(stop)
	return stop
}

// run runs the engine until the returned function is called, or the test ends.
func (s *site) run() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = s.engine.Run(ctx) }()
	stop = func() { cancel(); <-done }
	s.r.t.Cleanup(stop)
	return stop
}

// unknownToken makes a token for the cluster's CA, whose hash the state does not have.
func (s *site) unknownToken(role pki.Role) pki.JoinToken {
	s.r.t.Helper()
	ca, _ := s.machine.Current().ActiveKey(model.KeyCA)
	return must(pki.NewJoinToken(role, must(x509.ParseCertificate(ca.Public))(s.r.t)))(s.r.t)
}

// token makes a join token with one use.
func (s *site) token(role pki.Role, edit ...func(*fsm.TokenCreate)) pki.JoinToken {
	s.r.t.Helper()
	token := s.unknownToken(role)
	verifier := token.Verifier()
	c := &fsm.TokenCreate{ID: model.TokenID(token.ID()), Role: string(role), Verifier: verifier[:], TTL: model.Hour,
		Uses: 1, Labels: map[string]string{"rack": "r1"}}
	for _, f := range edit {
		f(c)
	}
	s.do(c)
	return token
}

// request makes a request for a certificate, and its key.
func request(t testing.TB, role pki.Role, name string) (der []byte, leafOf func([][]byte) *x509.Certificate) {
	t.Helper()
	der, key, err := pki.NewRequest(role, name, []string{"10.0.0.9"})
	if err != nil {
		t.Fatal(err)
	}
	return der, func(chain [][]byte) *x509.Certificate {
		t.Helper()
		if len(chain) != 1 {
			t.Fatalf("the chain has %d certificates", len(chain))
		}
		leaf := must(x509.ParseCertificate(chain[0]))(t)
		if !key.PublicKey.Equal(leaf.PublicKey) {
			t.Fatal("the certificate is for another key")
		}
		return leaf
	}
}

// join asks a server as the TLS port does.
func (s *site) join(token pki.JoinToken, r transport.JoinRequest) (transport.JoinReply, error) {
	// Each request comes from another address, so that refusals in one test don't add up.
	n := joins.Add(1)
	return s.joinFrom(&net.TCPAddr{IP: net.IPv4(127, 0, byte(n>>8), byte(n))}, token, r)
}

var joins atomic.Uint32

func (s *site) joinFrom(source net.Addr, token pki.JoinToken, r transport.JoinRequest) (transport.JoinReply, error) {
	r.Token = token.Reveal()
	return s.engine.AnswerJoin(s.r.t.Context(), source, r)
}

// joinServer lets a server join, and starts it on files of its own.
func (s *site) joinServer(name string, lifetime time.Duration) *site {
	t := s.r.t
	t.Helper()
	der, key, err := pki.NewRequest(pki.RoleServer, name, nil)
	if err != nil {
		t.Fatal(err)
	}
	reply := must(s.join(s.token(pki.RoleServer), transport.JoinRequest{Server: der, Address: "10.0.0.2:7640"}))(t)
	dir := t.TempDir()
	err = transport.ManagedDir(dir).Write(transport.ManagedFiles{Roots: reply.Roots, GossipKeys: reply.GossipKeys,
		Pairs: map[pki.Role]tls.Certificate{pki.RoleServer: {Certificate: reply.Server, PrivateKey: key}}})
	if err != nil {
		t.Fatal(err)
	}
	var keys []keyring.Key
	for _, b := range reply.Keyring {
		keys = append(keys, must(keyring.ParseKey(b))(t))
	}
	must(keyring.Create(filepath.Join(dir, keyring.FileName), keys...))(t)
	return s.r.start(name, dir, lifetime)
}
