package cluster

import (
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// provenAddresses remembers the address at which each server last proved itself with its certificate and its id. The
// zero value is ready to use. Safe for concurrent use.
type provenAddresses struct {
	mu   sync.Mutex
	last map[model.ServerID]string // host:port
}

func (p *provenAddresses) note(id model.ServerID, hostPort string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[model.ServerID]string{}
	}
	p.last[id] = hostPort
}

func (p *provenAddresses) is(id model.ServerID, hostPort string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[id] == hostPort
}

// addressBook gives raft the current address of each server.
type addressBook struct{ s *Server }

// ServerAddr implements raft.ServerAddressProvider.
func (b addressBook) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if address := b.s.addressOf(model.ServerID(id)); address != "" {
		return peerAddress(model.ServerID(id), address), nil
	}
	return "", fmt.Errorf("no address is known of server %s", id)
}

// addressOf returns the host:port of a server's TLS listener, or an empty string if no address is known. The address in
// gossip replaces the address in the raft configuration only after the server has proved itself there, because anyone
// with the gossip key can claim any address. If the configuration has no address, the address in gossip is used without
// a proof.
func (s *Server) addressOf(id model.ServerID) string {
	if id == s.dir.id {
		return s.cfg.Stream.Addr().String()
	}
	configured, claimed := s.configuredAddress(id), s.claimedAddress(id)
	if configured == "" || claimed != "" && s.seen.proven.is(id, claimed) {
		return claimed
	}
	return configured
}

// claimedAddress returns the host:port that gossip claims for a server's TLS listener. It returns an empty string if
// gossip does not know the server or reports it as dead.
func (s *Server) claimedAddress(id model.ServerID) string {
	if m, ok := s.seen.pool.Member(string(id)); ok && m.State != fsm.GossipDead {
		return m.Meta.API
	}
	return ""
}

// configuredAddress returns the host:port that the raft configuration has for a server, or an empty string.
func (s *Server) configuredAddress(id model.ServerID) string {
	if !s.opened.Load() { // raft calls this method while it is being created
		return ""
	}
	for _, v := range s.servers() {
		if model.ServerID(v.ID) == id {
			return string(v.Address)
		}
	}
	return ""
}

// dialAny connects to a server that may have any of these addresses. It tries all addresses at once, so that a silent
// address does not delay the others, and returns the first connection that succeeds.
func (h *helloLayer) dialAny(id model.ServerID, addresses []string, timeout time.Duration) (net.Conn, error) {
	type outcome struct {
		conn net.Conn
		err  error
	}
	outcomes := make(chan outcome, len(addresses))
	for _, address := range addresses {
		go func() { // returns within the timeout
			conn, err := h.dialAt(id, address, timeout)
			outcomes <- outcome{conn, err}
		}()
	}
	var failed error
	for tried := range len(addresses) {
		o := <-outcomes
		if o.err != nil {
			failed = o.err
			continue
		}
		go func() { // close connections that are opened later at the other addresses
			for range len(addresses) - tried - 1 {
				if late := <-outcomes; late.err == nil {
					_ = late.conn.Close()
				}
			}
		}()
		return o.conn, nil
	}
	return nil, failed
}
