package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// Profile is a set of gossip timings.
type Profile string

// The profiles. With lan, gossip alone detects a dead member after 5-7 s among 5 members, and after 10-14 s among 100.
// With fast, these times are 1 s and 2-3 s. With wan, gossip is slower and sends fewer messages.
const (
	ProfileLAN  Profile = "lan"
	ProfileWAN  Profile = "wan"
	ProfileFast Profile = "fast"
)

// Valid reports whether p is one of the profiles.
func (p Profile) Valid() bool { return p == ProfileLAN || p == ProfileWAN || p == ProfileFast }

// String returns the name of the profile, as in the configuration.
func (p Profile) String() string { return string(p) }

func (p Profile) config() *memberlist.Config {
	switch p {
	case ProfileWAN:
		return memberlist.DefaultWANConfig()
	case ProfileFast:
		c := memberlist.DefaultLANConfig()
		c.ProbeInterval, c.ProbeTimeout = 250*time.Millisecond, 200*time.Millisecond
		c.SuspicionMult, c.SuspicionMaxTimeoutMult = 3, 3
		c.GossipInterval = 100 * time.Millisecond
		return c
	}
	return memberlist.DefaultLANConfig()
}

// PoolConfig configures a Pool.
type PoolConfig struct {
	Name    string // immutable id of this member: a ServerID or a NodeID; required
	Cluster string // the configured cluster name; pools with the same key but other names stay apart; required
	Key     []byte // encrypts; 16, 24 or 32 bytes; required, on loopback too
	// OtherKeys decrypt too, while one key replaces another. See Pool.SetKeys.
	OtherKeys [][]byte
	Profile   Profile // default lan
	Bind      string  // IP address to listen on; default 0.0.0.0
	Port      int     // of UDP and TCP; 0 means any free port (tests and demo)
	// Advertise is the IP address at which others reach this member. By default, it is Bind, or a private address of the
	// machine if Bind is 0.0.0.0.
	Advertise string
	Join      []string  // "host:port", or "exec:/path" of a program that prints addresses
	Meta      Meta      // what this member says of itself until SetMeta changes it
	Transport Transport // default is UDP and TCP sockets on Bind:Port
	Logger    hclog.Logger
}

// Transport is how gossip sends and receives. Tests use a transport in memory.
type Transport = memberlist.Transport

// Member is what this process knows of one member of the pool.
type Member struct {
	Name    string
	Address string // host:port of its gossip
	State   fsm.Gossip
	Meta    Meta

	since time.Time // when the member last changed
	node  memberlist.Node
}

// Pool is this process's part in the gossip of all servers and agents. It knows which members exist and seem alive, and
// carries small messages that may get lost. It is safe for concurrent use.
//
// memberlist runs callbacks under its own lock, and the callbacks take the Pool's lock. So no code in this package may
// call memberlist while it holds the Pool's lock.
type Pool struct {
	cfg   PoolConfig
	log   hclog.Logger
	codec codec
	list  *memberlist.Memberlist
	keys  *poolKeys

	closed  atomic.Bool
	mu      sync.Mutex
	members map[string]Member
	view    poolView // cached views of members
	meta    []byte   // ownMeta, encoded
	ownMeta Meta
	wanted  []string // set by Want
	bounds  poolBounds
	nudged  []string // addresses that rejoin will contact soon
	nudge   chan struct{}
	change  chan struct{}
	inbox   chan []byte
}

// inboxSize is how many messages may wait for Receive before new ones are dropped.
const inboxSize = 2048

// OpenPool listens and begins to gossip. Run must be called to keep this member joined, and Close or Abandon to stop.
// Codes: gossip_key_invalid; invalid for an unknown profile; address_in_use or listen if the port can't be opened.
func OpenPool(cfg PoolConfig) (*Pool, error) {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	if cfg.Profile == "" {
		cfg.Profile = ProfileLAN
	}
	if err := checkPool(cfg); err != nil {
		return nil, err
	}
	p := &Pool{
		cfg: cfg, log: cfg.Logger, codec: newCodec(), ownMeta: cfg.Meta,
		members: map[string]Member{}, change: make(chan struct{}), inbox: make(chan []byte, inboxSize),
		nudge: make(chan struct{}, 1),
	}
	meta, err := p.codec.encodeMeta(cfg.Meta)
	if err != nil {
		return nil, err
	}
	p.meta = meta
	if p.keys, err = newPoolKeys(append([][]byte{cfg.Key}, cfg.OtherKeys...)); err != nil {
		return nil, err
	}
	if p.list, err = p.listen(); err != nil {
		code := model.CodeListen
		if errors.Is(err, syscall.EADDRINUSE) {
			code = model.CodeAddressInUse
		}
		return nil, model.Refuse(code, "can't open the gossip port %s: %v", joinPort(cfg.Bind, cfg.Port), err).
			WithHint("another process may use it; set listen.gossip_port")
	}
	return p, nil
}

// listen opens the sockets, unless the configuration has a transport, and begins to gossip.
func (p *Pool) listen() (*memberlist.Memberlist, error) {
	c := p.memberlistConfig()
	if c.Transport != nil {
		return memberlist.Create(c)
	}
	own, err := openSocket(c.BindAddr, c.BindPort, p.keys.screen, p.log)
	if err != nil {
		return nil, err
	}
	c.Transport = own
	list, err := memberlist.Create(c)
	if err != nil {
		_ = own.Shutdown() // memberlist may have closed it already
	}
	return list, err
}

func checkPool(cfg PoolConfig) error {
	switch {
	case cfg.Name == "" || len(cfg.Name) > maxMetaID:
		return fmt.Errorf("gossip: the name %q is not 1 to %d characters", cfg.Name, maxMetaID)
	case cfg.Cluster == "" || len(cfg.Cluster) > 63:
		return fmt.Errorf("gossip: the cluster name %q is not 1 to 63 characters", cfg.Cluster)
	case len(cfg.Key) == 0:
		return model.Refuse(model.CodeGossipKeyInvalid, "gossip needs a key").
			WithHint("make one with: outspan gossip key create, and set gossip.key_file")
	case !cfg.Profile.Valid():
		return model.Refuse(model.CodeInvalid, "gossip: unknown profile %q", cfg.Profile).WithHint("use lan, wan or fast")
	}
	return checkKeys(append([][]byte{cfg.Key}, cfg.OtherKeys...))
}

func (p *Pool) memberlistConfig() *memberlist.Config {
	c := p.cfg.Profile.config()
	c.Name, c.Label, c.Keyring = p.cfg.Name, p.cfg.Cluster, p.keys.ring
	c.BindAddr, c.BindPort, c.AdvertisePort = "0.0.0.0", p.cfg.Port, p.cfg.Port
	if p.cfg.Bind != "" {
		c.BindAddr = p.cfg.Bind
	}
	c.AdvertiseAddr = p.cfg.Advertise
	c.EnableCompression = false // the screens of other members refuse compressed messages
	c.TCPTimeout = joinTimeout
	c.DeadNodeReclaimTime = 10 * time.Second
	c.Transport = p.cfg.Transport
	c.Delegate, c.Events, c.Ping = gossipDelegate{p}, gossipEvents{p}, gossipPings{p}
	c.Alive = gossipBounds{p}
	c.Logger = newGossipLog(p.log, p.suspected)
	return c
}

// Run contacts lost members again, and forgets members that have been dead for forgetAfter. It blocks until ctx ends.
func (p *Pool) Run(ctx context.Context) error {
	p.rejoin(ctx)
	return nil
}

// Close announces that this member leaves, waits at most 1 s until the message is sent, and stops the gossip. The
// others then consider this member dead at once. Further calls do nothing.
func (p *Pool) Close() error {
	if p.closed.Swap(true) {
		return nil
	}
	if err := p.list.Leave(time.Second); err != nil {
		p.log.Debug("leave did not go out", "error", err)
	}
	return p.list.Shutdown()
}

// Abandon stops the gossip without an announcement, as a crash would.
func (p *Pool) Abandon() error {
	p.closed.Store(true)
	return p.list.Shutdown()
}

// Name returns this member's own name.
func (p *Pool) Name() string { return p.cfg.Name }

// Address returns the host:port at which others reach this member's gossip.
func (p *Pool) Address() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.members[p.cfg.Name].Address
}

// Changed returns a channel that is closed at the next change of a member.
func (p *Pool) Changed() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.change
}

// SetMeta changes what this member says of itself, and announces the change. It waits at most 1 s until the
// announcement is sent. If that takes longer, the change still spreads later. If the new Meta is too long, SetMeta
// changes nothing and returns an error. The function edit must not call the Pool.
func (p *Pool) SetMeta(edit func(*Meta)) error {
	p.mu.Lock()
	next := p.ownMeta
	if next.Server != nil {
		server := *next.Server
		next.Server = &server
	}
	edit(&next)
	buf, err := p.codec.encodeMeta(next)
	if err != nil {
		p.mu.Unlock()
		return err
	}
	same := string(buf) == string(p.meta)
	p.meta, p.ownMeta = buf, next
	p.mu.Unlock()
	if same {
		return nil
	}
	if err := p.list.UpdateNode(time.Second); err != nil {
		p.log.Debug("gossip meta not sent yet", "error", err)
	}
	return nil
}

// Send sends a message of at most 1 KiB to a member's Receive. The message may get lost. Send does not block. Code:
// not_found if the member isn't known.
func (p *Pool) Send(name string, msg []byte) error {
	p.mu.Lock()
	m, ok := p.members[name]
	p.mu.Unlock()
	if !ok {
		return model.Refuse(model.CodeNotFound, "no member %q in the gossip pool", name)
	}
	return p.list.SendBestEffort(&m.node, msg)
}

// Answer sends msg to the named member at address, an IP:port. The member need not be known, because a server that has
// just started knows no members. rejoin soon contacts an unknown member. If address is empty, Answer does the same as
// Send.
func (p *Pool) Answer(name, address string, msg []byte) error {
	if address == "" {
		return p.Send(name, msg)
	}
	if _, err := netip.ParseAddrPort(address); err != nil {
		return err // a host name is refused, not resolved
	}
	p.mu.Lock()
	if _, known := p.members[name]; !known {
		p.nudgeTo(address)
	}
	p.mu.Unlock()
	return p.list.SendToAddress(memberlist.Address{Addr: address, Name: name}, msg)
}

// Receive returns the channel of the messages that others sent. The receiver may keep the slices.
func (p *Pool) Receive() <-chan []byte { return p.inbox }

// Join contacts the gossip of other members. It blocks for at most 5 s for each address. It returns an error only if no
// address answered.
func (p *Pool) Join(addresses ...string) error {
	addresses = slices.DeleteFunc(slices.Clone(addresses), func(a string) bool { return a == p.Address() })
	if len(addresses) == 0 {
		return nil
	}
	_, err := p.list.Join(addresses)
	return plainly(err)
}

// plainly returns an error of memberlist as one line, even if it consists of several errors.
func plainly(err error) error {
	many, ok := err.(interface{ WrappedErrors() []error })
	if !ok {
		return err
	}
	var texts []string
	for _, one := range many.WrappedErrors() {
		texts = append(texts, strings.Join(strings.Fields(one.Error()), " "))
	}
	return errors.New(strings.Join(texts, "; "))
}

// Want sets the members that rejoin contacts whenever they are dead, and that the pool never forgets. They are the
// voters.
func (p *Pool) Want(names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = slices.Clone(names)
}

// wants reports whether a member is this member itself or was set by Want. p.mu is held.
func (p *Pool) wants(name string) bool { return name == p.cfg.Name || slices.Contains(p.wanted, name) }

// Heard is called when a member has shown that it is alive. A suspect member then counts as alive again. If gossip
// considers the member dead, rejoin contacts it soon.
func (p *Pool) Heard(name string) {
	p.update(name, func(m *Member) bool {
		switch m.State {
		case fsm.GossipSuspect:
			m.State = fsm.GossipAlive
			return true
		case fsm.GossipDead:
			p.nudgeTo(m.Address)
		}
		return false
	})
}

// nudgeTo makes rejoin contact an address soon, unless too many addresses wait already. p.mu is held.
func (p *Pool) nudgeTo(address string) {
	if slices.Contains(p.nudged, address) || len(p.nudged) >= maxNudged {
		return
	}
	p.nudged = append(p.nudged, address)
	select {
	case p.nudge <- struct{}{}:
	default:
	}
}

func joinPort(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }
