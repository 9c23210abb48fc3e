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

// provenAddresses remembers where each server last answered with its certificate and its id. The zero value is ready to
// use. It is safe for many goroutines.
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

// addressBook tells raft where a server is now.
type addressBook struct{ s *Server }

// ServerAddr implements raft.ServerAddressProvider.
func (b addressBook) ServerAddr(id raft.ServerID) (raft.ServerAddress, error) {
	if address := b.s.addressOf(model.ServerID(id)); address != "" {
		return peerAddress(model.ServerID(id), address), nil
	}
	return "", fmt.Errorf("no address is known of server %s", id)
}

// addressOf returns the host:port of a server's TLS listener, or an empty string. The address of the configuration
// counts, or the one in gossip if the server has answered there. Anyone with the gossip key can claim any address.
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

// claimedAddress returns the host:port of a server's TLS listener that gossip claims, or an empty string.
func (s *Server) claimedAddress(id model.ServerID) string {
	if m, ok := s.seen.pool.Member(string(id)); ok && m.State != fsm.GossipDead {
		return m.Meta.API
	}
	return ""
}

// configuredAddress returns the host:port of a server in the configuration, or an empty string.
func (s *Server) configuredAddress(id model.ServerID) string {
	if !s.opened.Load() { // raft asks while it is being made
		return ""
	}
	for _, v := range s.servers() {
		if model.ServerID(v.ID) == id {
			return string(v.Address)
		}
	}
	return ""
}

// dialAny connects to a server at the first of these addresses where it answers. It tries them all at once: an address
// that leads nowhere must not delay the others.
func (h *helloLayer) dialAny(id model.ServerID, addresses []string, timeout time.Duration) (net.Conn, error) {
	type outcome struct {
		conn net.Conn
		err  error
	}
	outcomes := make(chan outcome, len(addresses))
	for _, address := range addresses {
		go func() { // for at most the time of a dial
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
		go func() { // the others may still answer
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
