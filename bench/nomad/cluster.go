// Package nomad runs a cluster of Nomad on loopback, so that Nomad can be measured in the same run as outspan. As in
// package fleet, the cluster has three servers with TLS and with raft logs on disk. The package uses Nomad's documented
// HTTP API.
package nomad

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

const (
	servers    = 3
	startLimit = time.Minute
	callLimit  = 2 * time.Minute
)

// Cluster consists of three servers and some clients, which is Nomad's word for nodes. Methods with a parameter server
// send their request to Servers[server].
type Cluster struct {
	dir     string
	network string // "127.A.B"
	binary  string
	Servers []*procs.Process
	clients []*procs.Process
	http    *http.Client
}

// Start starts the servers with the program binary and waits until the leader accepts a write. The data of the servers
// is in a new directory below dir. Close kills the servers and removes the directory.
func Start(ctx context.Context, binary, dir string) (_ *Cluster, err error) {
	c := &Cluster{binary: binary, network: procs.Network()}
	if c.dir, err = os.MkdirTemp(dir, "outspan-bench-nomad-"); err != nil {
		return nil, fmt.Errorf("make a directory for the servers: %w", err)
	}
	defer func() {
		if err != nil {
			for _, p := range c.Servers {
				err = fmt.Errorf("%w\n-- end of the log of %s\n%s", err, p.Name, p.LastLines(5))
			}
			err = errors.Join(err, c.Close())
		}
	}()
	var addresses []string
	for i := range servers {
		addresses = append(addresses, c.address(i))
	}
	tls, err := certs(c.dir, addresses)
	if err != nil {
		return nil, err
	}
	c.http = &http.Client{Timeout: callLimit,
		Transport: &http.Transport{TLSClientConfig: tls, MaxIdleConnsPerHost: 1000, MaxIdleConns: 1000}}
	for i := range servers {
		p, err := c.start(fmt.Sprintf("n%d", i+1), c.address(i), c.serverConfig())
		if err != nil {
			return nil, err
		}
		c.Servers = append(c.Servers, p)
	}
	return c, procs.Until(ctx, startLimit, 100*time.Millisecond, func(ctx context.Context) error {
		leader, err := c.Leader(ctx)
		if err != nil {
			return err
		}
		return c.Write(ctx, leader, "start", 0) // fails until the keyring is ready, shortly after the election
	})
}

func (c *Cluster) address(i int) string { return fmt.Sprintf("%s.%d", c.network, i+1) }

func (c *Cluster) each(port string) string {
	var all []string
	for i := range servers {
		all = append(all, strconv.Quote(net.JoinHostPort(c.address(i), port)))
	}
	return strings.Join(all, ", ")
}

func (c *Cluster) serverConfig() string {
	return fmt.Sprintf("server {\n  enabled = true\n  bootstrap_expect = %d\n"+
		"  heartbeat_grace = \"10m\"\n  server_join {\n    retry_join = [%s]\n    retry_interval = \"1s\"\n  }\n}\n",
		servers, c.each("4648"))
}

// start writes the configuration of a server or a client and starts its process. role is the part of the configuration
// that differs between servers and clients.
func (c *Cluster) start(name, address, role string) (*procs.Process, error) {
	p := &procs.Process{Name: name, Tied: true, Log: filepath.Join(c.dir, name+".log"), Data: filepath.Join(c.dir, name)}
	text := fmt.Sprintf(`name = %q
data_dir = %q
bind_addr = %q
advertise {
  http = %q
  rpc = %q
  serf = %q
}
log_level = "WARN"
disable_update_check = true
%stls {
  http = true
  rpc = true
  ca_file = %q
  cert_file = %q
  key_file = %q
  verify_https_client = true
  verify_server_hostname = true
}
limits {
  http_max_conns_per_client = 0
  rpc_max_conns_per_client = 0
}
`, name, p.Data, address, address, address, address, role, filepath.Join(c.dir, "cert.pem"), filepath.Join(c.dir, "cert.pem"), filepath.Join(c.dir, "key.pem"))
	config := filepath.Join(c.dir, name+".hcl")
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	p.Command = []string{c.binary, "agent", "-config", config}
	if err := p.Start(); err != nil {
		return nil, err
	}
	return p, nil
}

// AddNodes starts n clients with practically unlimited capacity. Once they are ready, it freezes their processes, so
// that only the servers use the CPU. The servers consider a silent client alive for ten minutes.
func (c *Cluster) AddNodes(ctx context.Context, n int) error {
	role := fmt.Sprintf(`client {
  enabled = true
  servers = [%s]
  cpu_total_compute = 10000000
  memory_total_mb = 10000000
  disk_total_mb = 10000000
  disk_free_mb = 10000000
  options = {
    "fingerprint.denylist" = "env_aws,env_azure,env_gce,env_digitalocean,consul,vault,cni"
  }
}
`, c.each("4647"))
	for i := range n {
		p, err := c.start(fmt.Sprintf("c%d", i+1), c.address(servers+i), role)
		if err != nil {
			return err
		}
		c.clients = append(c.clients, p)
	}
	err := procs.Until(ctx, startLimit, 200*time.Millisecond, func(ctx context.Context) error {
		var nodes []struct{ Status string }
		if err := c.call(ctx, 0, http.MethodGet, "/v1/nodes", nil, &nodes); err != nil {
			return err
		}
		ready := 0
		for _, n := range nodes {
			if n.Status == "ready" {
				ready++
			}
		}
		if ready < n {
			return fmt.Errorf("%d of %d nodes are ready", ready, n)
		}
		return nil
	})
	for _, p := range c.clients {
		if failed := p.Signal(syscall.SIGSTOP); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w\n%s", p.Name, failed, p.LastLines(5)))
		}
	}
	return err
}

// Leader returns the leader's index in Servers, or an error if no running server leads.
func (c *Cluster) Leader(ctx context.Context) (int, error) {
	for i, s := range c.Servers {
		var leader string
		if !s.Running() || c.call(ctx, i, http.MethodGet, "/v1/status/leader", nil, &leader) != nil {
			continue
		}
		for j := range c.Servers {
			if strings.HasPrefix(leader, c.address(j)+":") && c.Servers[j].Running() {
				return j, nil
			}
		}
	}
	return 0, errors.New("no server leads")
}

// Write sets the variable with this name to n. It returns when the write is committed and applied.
func (c *Cluster) Write(ctx context.Context, server int, name string, n int64) error {
	path := "bench/" + name
	body := map[string]any{"Path": path, "Items": map[string]string{"bench": strconv.FormatInt(n, 10)}}
	return c.call(ctx, server, http.MethodPut, "/v1/var/"+path, body, nil)
}

// Place submits a job of count instances, each of which needs almost no resources. It doesn't wait for placements.
func (c *Cluster) Place(ctx context.Context, server int, job string, count int) error {
	task := map[string]any{"Name": "t", "Driver": "mock_driver", "Config": map[string]any{"run_for": "1h"},
		"Resources": map[string]int{"CPU": 10, "MemoryMB": 10},
		"LogConfig": map[string]int{"MaxFiles": 1, "MaxFileSizeMB": 1}}
	group := map[string]any{"Name": "g", "Count": count, "EphemeralDisk": map[string]int{"SizeMB": 10},
		"Tasks": []any{task}}
	return c.call(ctx, server, http.MethodPost, "/v1/jobs",
		map[string]any{"Job": map[string]any{"ID": job, "Type": "service", "Datacenters": []string{"dc1"},
			"TaskGroups": []any{group}}}, nil)
}

// Placed returns how many instances of a job are starting or running in the server's own state, which may be stale.
func (c *Cluster) Placed(ctx context.Context, server int, job string) (int, error) {
	var answer struct {
		Summary map[string]struct{ Starting, Running int }
	}
	err := c.call(ctx, server, http.MethodGet, "/v1/job/"+job+"/summary?stale=true", nil, &answer)
	return answer.Summary["g"].Starting + answer.Summary["g"].Running, err
}

// Save returns a snapshot of the state.
func (c *Cluster) Save(ctx context.Context, server int) ([]byte, error) {
	var saved bytes.Buffer
	err := c.do(ctx, server, http.MethodGet, "/v1/operator/snapshot", nil, &saved)
	return saved.Bytes(), err
}

// Restore replaces the servers' state with a snapshot.
func (c *Cluster) Restore(ctx context.Context, server int, saved []byte) error {
	return c.do(ctx, server, http.MethodPut, "/v1/operator/snapshot", saved, io.Discard)
}

func (c *Cluster) call(ctx context.Context, server int, method, path string, body, answer any) error {
	var sent []byte
	if body != nil {
		var err error
		if sent, err = json.Marshal(body); err != nil {
			return err
		}
	}
	var got bytes.Buffer
	if err := c.do(ctx, server, method, path, sent, &got); err != nil || answer == nil {
		return err
	}
	return json.Unmarshal(got.Bytes(), answer)
}

func (c *Cluster) do(ctx context.Context, server int, method, path string, body []byte, answer io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, method, "https://"+net.JoinHostPort(c.address(server), "4646")+path,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000)) // an error only shortens the message
		return fmt.Errorf("%s %s: %s: %s", method, path, resp.Status, bytes.TrimSpace(text))
	}
	_, err = io.Copy(answer, resp.Body)
	return err
}

// Close kills all servers and clients and removes their files.
func (c *Cluster) Close() error {
	for _, p := range append(c.clients, c.Servers...) {
		p.Kill()
	}
	if c.http != nil {
		c.http.CloseIdleConnections()
	}
	return os.RemoveAll(c.dir)
}
