package fleet

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Name is the cluster's name.
const Name = "bench"

// Config is what Start needs.
type Config struct {
	Binary       string        // path of the program; required
	Servers      int           // default 3
	OfflineAfter time.Duration // the setting offline_after; default 60 s
	Fast         bool          // use the fast profile of gossip
	Patience     int           // raft_multiplier; default 1
	Dir          string        // directory for the data; default: the system's directory for temporary files
	Env          []string      // environment variables of every server, in addition to those of this process
}

// Fleet is the servers of one cluster. Its methods are safe for concurrent use, except while a server is started or
// killed.
type Fleet struct {
	cfg     Config
	dir     string
	network string // the first three bytes of all addresses, "127.A.B"
	Servers []*Server
	client  *transport.Client
	creds   *transport.Credentials
}

// Start starts the servers and waits until one of them is the leader, at most electionLimit. The caller must call
// Close, which kills the servers and removes their files.
func Start(ctx context.Context, cfg Config) (_ *Fleet, err error) {
	if cfg.Servers == 0 {
		cfg.Servers = 3
	}
	dir, err := os.MkdirTemp(cfg.Dir, "outspan-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a directory for the servers: %w", err)
	}
	f := &Fleet{cfg: cfg, dir: dir, network: procs.Network()}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	for i := range cfg.Servers {
		f.Servers = append(f.Servers, f.newServer(fmt.Sprintf("s%d", i+1), fmt.Sprintf("%s.%d", f.network, i+1)))
	}
	ca, _, err := transport.OpenDir(f.TLS(), Name)
	if err != nil {
		return nil, err
	}
	if f.creds, err = ca.Credentials(pki.RoleCLI, "bench"); err != nil {
		return nil, err
	}
	if f.client, err = f.Client(f.Servers...); err != nil {
		return nil, err
	}
	for _, s := range f.Servers {
		if err = f.configure(s); err == nil {
			err = s.Start()
		}
		if err != nil {
			return nil, err
		}
	}
	_, err = f.WaitLeader(ctx)
	return f, err
}

func (f *Fleet) configure(s *Server) error {
	var join []string
	for _, one := range f.Servers {
		join = append(join, strconv.Quote(net.JoinHostPort(one.address, "7642")))
	}
	profile, settings := "lan", ""
	if f.cfg.Fast {
		profile = "fast"
	}
	if f.cfg.OfflineAfter > 0 {
		settings = fmt.Sprintf("settings {\n  offline_after = %q\n}\n", f.cfg.OfflineAfter)
	}
	text := fmt.Sprintf(`name = %q
cluster = %q
data_dir = %q
server {
  bootstrap_expect = %d
  raft_multiplier = %d
  retry_join = [%s]
}
%slisten {
  address = %q
  socket = %q
}
tls {
  dir = %q
}
gossip {
  profile = %q
}
limits {
  requests_per_second = 1000000
}
`, s.Name, Name, s.Data, len(f.Servers), max(1, f.cfg.Patience), strings.Join(join, ", "), settings, s.address, s.Socket(), f.TLS(), profile)
	if err := os.WriteFile(s.config(), []byte(text), 0o600); err != nil {
		return fmt.Errorf("write the configuration of %s: %w", s.Name, err)
	}
	return nil
}

// TLS returns the directory of the cluster's CA and gossip key.
func (f *Fleet) TLS() string { return filepath.Join(f.dir, "tls") }

// Dir returns the directory of the cluster's files.
func (f *Fleet) Dir() string { return f.dir }

// Address returns the IP address 127.A.B.n in the cluster's network. The servers have the addresses with n from 1 to
// the number of servers. n must be at most 254.
func (f *Fleet) Address(n int) string { return fmt.Sprintf("%s.%d", f.network, n) }

// APIs returns the API addresses of all servers, as host:port.
func (f *Fleet) APIs() []string {
	var all []string
	for _, s := range f.Servers {
		all = append(all, s.API())
	}
	return all
}

// Client makes a client of these servers over TLS, with an operator's credentials. The caller closes it.
func (f *Fleet) Client(servers ...*Server) (*transport.Client, error) {
	var urls []string
	for _, s := range servers {
		urls = append(urls, "https://"+s.API())
	}
	return transport.NewClient(transport.ClientConfig{Addresses: urls, Credentials: f.creds})
}

// Credentials returns an operator's credentials.
func (f *Fleet) Credentials() *transport.Credentials { return f.creds }

// Any returns a client that uses any of the servers. Fleet.Close closes the client.
func (f *Fleet) Any() *transport.Client { return f.client }

// Leader asks any server that answers for the current leader. It returns an error if the server knows no leader, or if
// the leader's process does not run any more.
func (f *Fleet) Leader(ctx context.Context) (*Server, error) {
	var members struct {
		Items []struct {
			Name   string `json:"name"`
			Leader bool   `json:"leader"`
		} `json:"items"`
	}
	if err := Get(ctx, f.client, "/v1/members?consistency=stale", &members); err != nil {
		return nil, err
	}
	for _, m := range members.Items {
		for _, s := range f.Servers {
			if m.Leader && m.Name == s.Name && s.Running() {
				return s, nil
			}
		}
	}
	return nil, errors.New("no server leads")
}

// Follower returns a running server that is not the leader.
func (f *Fleet) Follower(ctx context.Context) (*Server, error) {
	leader, err := f.Leader(ctx)
	if err != nil {
		return nil, err
	}
	for _, s := range f.Servers {
		if s != leader && s.Running() {
			return s, nil
		}
	}
	return nil, errors.New("no follower runs")
}

const electionLimit = 30 * time.Second

// WaitLeader blocks until a server is the leader and answers a read, at most electionLimit.
func (f *Fleet) WaitLeader(ctx context.Context) (leader *Server, err error) {
	err = procs.Until(ctx, electionLimit, 50*time.Millisecond, func(ctx context.Context) error {
		if leader, err = f.Leader(ctx); err != nil {
			return err
		}
		_, err = f.client.Send(ctx, reach.Request{Path: "/v1/settings", Limit: 2 * time.Second})
		return err
	})
	return leader, err
}

// Close kills every server and removes all files of the cluster.
func (f *Fleet) Close() error {
	for _, s := range f.Servers {
		s.Kill()
	}
	if f.client != nil {
		f.client.Close()
	}
	return os.RemoveAll(f.dir)
}
