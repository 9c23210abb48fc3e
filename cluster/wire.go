package cluster

import (
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/internal/plant"
	"github.com/outspan/outspan/model"
)

// Stream is raft's share of the TLS port: transport.RaftStream, or pipes in a test. Both ends of a connection are
// authenticated with the role server.
type Stream interface {
	net.Listener
	// DialRaft connects to another server within the timeout.
	DialRaft(address string, timeout time.Duration) (net.Conn, error)
	// PeerName returns the name in the certificate of the other end of a connection that DialRaft made, or an empty string
	// if there is no certificate.
	PeerName(net.Conn) string
	// Changes returns a number that grows when this server gets another certificate, and when it ceases to trust a CA.
	Changes() uint64
}

var errNoRoom = errors.New("too little free space on this server's disk")

// peerTransport is the transport that raft uses. It is a NetworkTransport without pipelining. Each connection begins
// with the ids of both servers (see helloLayer). While the disk is full, the transport refuses requests that need room.
type peerTransport struct {
	*raft.NetworkTransport
	room     func() Room
	member   func(raft.ServerID) bool // whether a server is a member, as far as this server knows
	refused  refusals                 // servers that answered that this server is no member
	installs atomic.Uint64            // number of requests to install a snapshot that this server has sent
	rpcs     chan raft.RPC
	done     chan struct{}
	once     sync.Once
	wg       sync.WaitGroup
}

func newPeerTransport(layer raft.StreamLayer, addresses raft.ServerAddressProvider, room func() Room,
	member func(raft.ServerID) bool, log hclog.Logger) *peerTransport {
	t := &peerTransport{
		NetworkTransport: raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
			Stream: layer, ServerAddressProvider: addresses, Logger: log,
			MaxPool: raftPool, MaxRPCsInFlight: inFlight(), Timeout: raftTimeout,
		}),
		room: room, member: member, rpcs: make(chan raft.RPC), done: make(chan struct{}),
	}
	t.wg.Go(t.pump)
	return t
}

// Consumer implements raft.Transport.
func (t *peerTransport) Consumer() <-chan raft.RPC { return t.rpcs }

// EncodePeer implements raft.Transport. It returns the plain address, without the id that the address provider adds.
func (t *peerTransport) EncodePeer(_ raft.ServerID, address raft.ServerAddress) []byte {
	return []byte(address)
}

// RequestPreVote implements raft.WithPreVote. It fails while the disk is full: a new leader first appends an entry, so
// a server that can't append must not lead. It also records which servers answer that this server is no member; see
// removed.
func (t *peerTransport) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest,
	resp *raft.RequestPreVoteResponse) error {
	if t.room() == RoomNone {
		return errNoRoom
	}
	err := t.NetworkTransport.RequestPreVote(id, target, args, resp)
	t.refused.note(id, err)
	return err
}

// Close implements raft.WithClose.
func (t *peerTransport) Close() error {
	t.once.Do(func() { close(t.done) })
	t.NetworkTransport.CloseStreams()
	err := t.NetworkTransport.Close()
	t.wg.Wait()
	return err
}

// pump passes requests on to raft, or answers them with the error of t.refuses. A leader repeats a refused request with
// growing delays. Heartbeats bypass pump. So a server with a full disk keeps its leader, and catches up by itself when
// there is room again.
func (t *peerTransport) pump() {
	in := t.NetworkTransport.Consumer()
	var seen installSeen
	for {
		var rpc raft.RPC
		select {
		case <-t.done:
			return
		case rpc = <-in:
		}
		if refusal := t.refuses(rpc, &seen); refusal != nil {
			if rpc.Reader != nil {
				_, _ = io.Copy(io.Discard, rpc.Reader)
			}
			rpc.Respond(nil, refusal)
			continue
		}
		select {
		case <-t.done:
			return
		case t.rpcs <- rpc:
		}
	}
}

func (t *peerTransport) refuses(rpc raft.RPC, seen *installSeen) error {
	switch {
	case needsRoom(rpc) && t.room() == RoomNone:
		return errNoRoom
	case seen.overtaken(rpc):
		return errOvertaken
	case t.strange(rpc):
		return errNotMember
	}
	return nil
}

// strange reports whether a request comes from a server that wants to be elected but is no member.
func (t *peerTransport) strange(rpc raft.RPC) bool {
	cmd, ok := rpc.Command.(*raft.RequestPreVoteRequest)
	return ok && !t.member(raft.ServerID(cmd.ID))
}

func needsRoom(rpc raft.RPC) bool {
	switch cmd := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		return len(cmd.Entries) > 0
	case *raft.InstallSnapshotRequest, *raft.TimeoutNowRequest:
		return true
	}
	return false
}

// helloLayer is a raft.StreamLayer whose connections begin with a hello: the caller's history and id, and the id of the
// server that it means to reach. raft itself knows servers by host:port only. Without the hello, a leader would
// replicate to any server that now has a peer's address: a wiped server that has forgotten its votes, or a server of
// another cluster.
type helloLayer struct {
	Stream
	self     model.ServerID
	history  func() model.History      // returns this server's history; zero while it belongs to no cluster
	join     func(model.History) error // gives this new server the caller's history
	replaced func(by model.History)    // stops this server, whose history was replaced
	// configured and claimed return a server's address in the configuration and in gossip, or an empty string.
	configured, claimed func(model.ServerID) string
	proven              func(id model.ServerID, hostPort string) // records that the server answered at this address
	log                 hclog.Logger
}

const (
	helloVersion = "outspan-raft/1"
	helloLimit   = 1024
	helloTimeout = 5 * time.Second
	helloYes     = 'y'
	helloNo      = 'n'
	helloOlder   = 'o' // the caller's lineage was replaced; the history of the server that answers follows as a line
)

// peerAddress returns a server's address as raft gets it: id@host:port.
func peerAddress(id model.ServerID, hostPort string) raft.ServerAddress {
	return raft.ServerAddress(string(id) + "@" + hostPort)
}

// Dial implements raft.StreamLayer. The connection replaces itself after a change of the certificates; see freshConn.
func (h *helloLayer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	changes := h.Changes() // before the dial: a change during the dial leads to one more dial
	conn, err := h.dialHello(address, timeout)
	if err != nil {
		return nil, err
	}
	return &freshConn{Conn: conn, changes: changes, now: h.Changes,
		dial: func() (net.Conn, error) { return h.dialHello(address, freshTimeout) }}, nil
}

const (
	freshTimeout = time.Second
	freshPause   = 10 * time.Second // after a failure
)

// freshConn is a connection to another server that raft keeps for many requests. Before the first request after a
// change of the certificates, it dials again and closes the old connection. So no request is under way on the old
// connection when its CA is dropped. If the dial fails, it keeps the old one. Only one goroutine at a time may use it.
type freshConn struct {
	net.Conn
	changes uint64 // before Conn was dialled
	now     func() uint64
	dial    func() (net.Conn, error)
	failed  time.Time // when dial last failed
}

// SetDeadline implements net.Conn. raft calls it once for each request, before it sends the request.
func (c *freshConn) SetDeadline(t time.Time) error {
	if now := c.now(); now != c.changes && time.Since(c.failed) > freshPause {
		if conn, err := c.dial(); err == nil {
			_ = c.Conn.Close()
			c.Conn, c.changes = conn, now
		} else {
			c.failed = time.Now()
		}
	}
	return c.Conn.SetDeadline(t)
}

// dialHello connects to a server. It also tries the server's addresses in the configuration and in gossip. These
// attempts are safe, because the hello checks who answers.
func (h *helloLayer) dialHello(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	text, hostPort, ok := strings.Cut(string(address), "@")
	if !ok {
		return nil, fmt.Errorf("dial %s: the id of the server there is not known", address)
	}
	id := model.ServerID(text)
	addresses := []string{hostPort}
	for _, other := range [...]string{h.configured(id), h.claimed(id)} {
		if other != "" && !slices.Contains(addresses, other) {
			addresses = append(addresses, other)
		}
	}
	if len(addresses) == 1 {
		return h.dialAt(id, hostPort, timeout)
	}
	return h.dialAny(id, addresses, timeout)
}

// dialAt connects to an address, and returns an error if the server there does not have the given id. It blocks for at
// most timeout.
func (h *helloLayer) dialAt(id model.ServerID, hostPort string, timeout time.Duration) (net.Conn, error) {
	address := peerAddress(id, hostPort)
	began := time.Now()
	conn, err := h.DialRaft(hostPort, timeout)
	if err != nil {
		return nil, err
	}
	if err := h.greet(conn, id, began.Add(timeout)); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	h.proven(id, hostPort)
	return conn, nil
}

func (h *helloLayer) greet(conn net.Conn, to model.ServerID, deadline time.Time) error {
	if err := conn.SetDeadline(deadline); err != nil {
		return err
	}
	ours := h.history()
	history := ours.String()
	if history == "" {
		history = "-"
	}
	if _, err := fmt.Fprintf(conn, "%s %s %s %s\n", helloVersion, history, h.self, to); err != nil {
		return err
	}
	var answer [1]byte
	if _, err := io.ReadFull(conn, answer[:]); err != nil {
		return fmt.Errorf("no answer to the hello: %w", err)
	}
	switch answer[0] {
	case helloYes:
	case helloOlder:
		return h.older(conn, ours)
	default:
		return fmt.Errorf("the server there is not %s of this cluster", to)
	}
	return conn.SetDeadline(time.Time{})
}

// Accept implements net.Listener. It does not wait for the hello, so that a silent peer does not delay others. The
// first Read of the connection reads the hello.
func (h *helloLayer) Accept() (net.Conn, error) {
	conn, err := h.Stream.Accept()
	if err != nil {
		return nil, err
	}
	return &helloConn{Conn: conn, layer: h}, nil
}

// helloConn reads the hello before it returns any bytes.
type helloConn struct {
	net.Conn
	layer *helloLayer
	met   bool // whether the hello was read; used only by the one reader
}

// Read implements net.Conn.
func (c *helloConn) Read(p []byte) (int, error) {
	if !c.met {
		if err := c.layer.meet(c.Conn); err != nil {
			c.layer.log.Warn("refused a raft connection", "remote", c.RemoteAddr(), "error", err)
			_ = c.Close()
			return 0, err
		}
		c.met = true
	}
	return c.Conn.Read(p)
}

func (h *helloLayer) meet(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(helloTimeout)); err != nil {
		return err
	}
	line, err := readLine(conn, helloLimit)
	if err != nil {
		return fmt.Errorf("read the hello: %w", err)
	}
	if answer, err := h.check(line); err != nil {
		_, _ = io.WriteString(conn, answer)
		return err
	}
	if _, err := conn.Write([]byte{helloYes}); err != nil {
		return err
	}
	return conn.SetDeadline(time.Time{})
}

// older reads the history that follows helloOlder. If that history replaced this server's history, older stops this
// server. It always returns an error.
func (h *helloLayer) older(conn net.Conn, ours model.History) error {
	line, err := readLine(conn, helloLimit)
	if err != nil {
		return fmt.Errorf("read the history of the other server: %w", err)
	}
	theirs, refusal := model.ParseHistory(line)
	if refusal != nil {
		return refusal
	}
	if theirs.Replaces(ours) {
		h.replaced(theirs)
	}
	return fmt.Errorf("the server there is of the lineage %s, which replaced that of this one", theirs.Lineage())
}

// check judges a hello. If it returns an error, answer is what to send to the caller. check stops this server if the
// caller's lineage replaced this server's lineage. If this server belongs to no cluster, check gives it the caller's
// history.
func (h *helloLayer) check(line string) (answer string, err error) {
	no := string(rune(helloNo))
	words := strings.Split(line, " ")
	if len(words) != 4 || words[0] != helloVersion {
		return no, errors.New("not a hello of this version")
	}
	from, to := words[2], words[3]
	var theirs model.History // empty if the caller has not joined a cluster
	if words[1] != "-" {
		var refusal *model.Error
		if theirs, refusal = model.ParseHistory(words[1]); refusal != nil {
			return no, refusal
		}
		if theirs.Cluster == "" {
			return no, errors.New("a hello without a cluster")
		}
	}
	ours := h.history()
	if plant.Is(plant.OlderLineage) {
		theirs = model.History{Cluster: theirs.Cluster}
		ours = model.History{Cluster: ours.Cluster}
	}
	switch {
	case ours.Cluster != "" && theirs.Replaces(ours):
		h.replaced(theirs)
		return no, fmt.Errorf("%s is of the lineage %s, which replaced that of this server", from, theirs.Lineage())
	case theirs.Cluster != "" && ours.Replaces(theirs):
		return string(rune(helloOlder)) + ours.String() + "\n",
			fmt.Errorf("%s is of a lineage that was replaced when a server was recovered", from)
	case to != string(h.self):
		return no, fmt.Errorf("%s looks for the server %s at this address; this is %s", from, to, h.self)
	case theirs.Cluster != "" && ours.Cluster != "" && !ours.Same(theirs):
		return no, fmt.Errorf("%s is of the cluster %s; this server is of %s", from, theirs, ours)
	case ours.Cluster == "" && theirs.Lineage() != "":
		if err := h.join(theirs); err != nil {
			return no, fmt.Errorf("note the history of %s: %w", from, err)
		}
	}
	return "", nil
}

// readLine reads up to a newline, byte by byte, because the bytes after the newline belong to raft.
func readLine(r io.Reader, limit int) (string, error) {
	var line []byte
	var b [1]byte
	for len(line) < limit {
		if _, err := io.ReadFull(r, b[:]); err != nil {
			return "", err
		}
		if b[0] == '\n' {
			return string(line), nil
		}
		line = append(line, b[0])
	}
	return "", errors.New("too long")
}
