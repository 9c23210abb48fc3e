package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/pki"
)

const (
	rejoinEvery = 30 * time.Second // between attempts, unless this member is deserted
	joinEvery   = time.Second      // between attempts while this member is deserted
	maxNudged   = 64               // addresses that may wait in Pool.nudged
	// dead servers, other than wanted members, that are tried each time; few, because only gossip says that they are
	// servers
	rejoinServers = 16
	rejoinOthers  = 3               // other dead members that are tried each time
	joinTimeout   = 5 * time.Second // of one connection to a member
	resolveLimit  = 5 * time.Second // for one entry of retry_join
	forgetAfter   = 24 * time.Hour  // how long a member is dead before the pool forgets it, unless it is wanted
)

// rejoin contacts dead members, and the addresses that nudgeTo has queued, until ctx ends. memberlist forgets a dead
// member after 30 s and never contacts it again. Without rejoin, two sides of a network partition that lasts some
// minutes would never find each other again.
func (p *Pool) rejoin(ctx context.Context) {
	tick := time.NewTicker(joinEvery)
	defer tick.Stop()
	var due time.Time
	for {
		var addresses []string
		if now := time.Now(); !now.Before(due) || p.deserted() {
			addresses, due = p.missing(ctx), now.Add(rejoinEvery)
		}
		nudged := p.takeNudged()
		for _, address := range append(addresses, nudged...) { // one by one, so that a stop waits for at most one dial
			if slices.Contains(nudged, address) && p.aliveAt(address) {
				continue // a call for an earlier address has already found this member
			}
			if err := p.Join(address); err != nil && ctx.Err() == nil {
				p.log.Debug("can't join", "address", address, "error", err)
			}
			if ctx.Err() != nil {
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.nudge:
			pause(ctx, joinEvery)
		case <-tick.C:
		}
	}
}

// deserted reports whether this member knows no other living member, or knows other servers but no living server. The
// second case matters to agents when all servers were restarted at once: these servers know no agents, so the agents
// must contact them.
func (p *Pool) deserted() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	alive, servers, serving := false, false, false
	for name, m := range p.members {
		if name == p.cfg.Name {
			continue
		}
		server, up := m.Meta.Role == pki.RoleServer, m.State != fsm.GossipDead
		alive, servers, serving = alive || up, servers || server, serving || server && up
	}
	return !alive || servers && !serving
}

func (p *Pool) takeNudged() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := p.nudged
	p.nudged = nil
	return out
}

// aliveAt reports whether a member that is not dead has this address.
func (p *Pool) aliveAt(address string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if m.Address == address && m.State != fsm.GossipDead {
			return true
		}
	}
	return false
}

// missing returns the addresses to contact now: those of all dead wanted members, of some other dead servers, and of
// some other dead members. If a wanted member is not alive, or all other members are dead, it adds the configured
// addresses. It also drops members that died more than 24 h ago, unless they are wanted.
func (p *Pool) missing(ctx context.Context) (addresses []string) {
	var servers, dead []string
	alone := true
	p.mu.Lock()
	lost := slices.ContainsFunc(p.wanted, func(name string) bool {
		return name != p.cfg.Name && p.members[name].State != fsm.GossipAlive
	})
	for name, m := range p.members {
		switch {
		case name == p.cfg.Name:
		case m.State != fsm.GossipDead:
			alone = false
		case slices.Contains(p.wanted, name):
			addresses = append(addresses, m.Address)
		case time.Since(m.since) > forgetAfter:
			p.drop(name, m)
		case m.Meta.Role == pki.RoleServer:
			servers = append(servers, m.Address)
		default:
			dead = append(dead, m.Address)
		}
	}
	p.mu.Unlock()
	addresses = append(addresses, someOf(servers, rejoinServers)...)
	addresses = append(addresses, someOf(dead, rejoinOthers)...)
	if alone || lost {
		addresses = append(addresses, p.configured(ctx)...)
	}
	slices.Sort(addresses)
	return slices.Compact(addresses)
}

// someOf returns up to most of the addresses, chosen at random. It changes the order of addresses.
func someOf(addresses []string, most int) []string {
	rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
	return addresses[:min(most, len(addresses))]
}

// configured resolves the configured addresses, and logs entries that can't be resolved. memberlist could resolve names
// too, but it would ask name servers over TCP without a deadline.
func (p *Pool) configured(ctx context.Context) []string {
	var out []string
	for _, entry := range p.cfg.Join {
		found, err := resolveJoin(ctx, entry)
		if err != nil {
			p.log.Warn("can't resolve a join address", "entry", entry, "error", err)
		}
		out = append(out, found...)
	}
	return out
}

// silent contacts the configured addresses that are not in answered yet. It adds the addresses that answer to answered,
// and returns the others. It also returns entries that can't be resolved or that give no address.
func (p *Pool) silent(ctx context.Context, answered map[string]bool) []string {
	var silent []string
	for _, entry := range p.cfg.Join {
		found, err := resolveJoin(ctx, entry)
		if err != nil || len(found) == 0 { // for example, a program that prints no address yet
			silent = append(silent, entry)
		}
		for _, address := range found {
			if !answered[address] {
				answered[address] = p.Join(address) == nil
			}
			if !answered[address] {
				silent = append(silent, address)
			}
		}
	}
	return silent
}

// resolveJoin turns one entry of retry_join into IP:port addresses. For "exec:/path" it runs the program, which prints
// host:port addresses separated by white space. It blocks for at most 6 s.
func resolveJoin(ctx context.Context, entry string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveLimit)
	defer cancel()
	path, isExec := strings.CutPrefix(entry, "exec:")
	if !isExec {
		return resolveHost(ctx, entry)
	}
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%q is not an absolute path", path)
	}
	cmd := exec.CommandContext(ctx, path)
	cmd.WaitDelay = time.Second
	printed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("run %s: %w", path, err)
	}
	var out []string
	for _, address := range strings.Fields(string(printed)) {
		found, err := resolveHost(ctx, address)
		if err != nil {
			return out, err
		}
		out = append(out, found...)
	}
	return out, nil
}

func resolveHost(ctx context.Context, address string) ([]string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("%q is not host:port: %w", address, err)
	}
	if net.ParseIP(host) != nil {
		return []string{address}, nil
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	for i, ip := range ips {
		ips[i] = net.JoinHostPort(ip, port)
	}
	return ips, nil
}
