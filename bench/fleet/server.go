package fleet

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/transport"
)

// Server is one server process.
type Server struct {
	procs.Process
	fleet   *Fleet
	address string
}

func (f *Fleet) newServer(name, address string) *Server {
	s := &Server{fleet: f, address: address}
	s.Process = procs.Process{
		Name: name, Tied: true, Log: filepath.Join(f.dir, name+".log"), Data: filepath.Join(f.dir, name),
		Env: append([]string{"OUTSPAN_PROFILE_NAME=" + name}, f.cfg.Env...),
	}
	s.Command = []string{f.cfg.Binary, "server", "run", "--config", s.config()}
	return s
}

// API returns the address of the server's API, as host:port.
func (s *Server) API() string { return net.JoinHostPort(s.address, "7640") }

// Socket returns the path of the unix socket of the server's API.
func (s *Server) Socket() string { return filepath.Join(s.fleet.dir, s.Name+".sock") }

func (s *Server) config() string { return filepath.Join(s.fleet.dir, s.Name+".hcl") }

// Applied returns the index of the last log entry that the server has applied. c must be a client of this server only.
func (s *Server) Applied(ctx context.Context, c *transport.Client) (uint64, error) {
	answer, err := c.Send(ctx, reach.Request{Path: "/v1/settings", Query: map[string][]string{"consistency": {"stale"}}})
	return answer.Index, err
}

// Metric returns the value of a metric that has no labels. c must be a client of this server only.
func (s *Server) Metric(ctx context.Context, c *transport.Client, name string) (float64, error) {
	answer, err := c.Send(ctx, reach.Request{Path: "/metrics"})
	if err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(bytes.NewReader(answer.Body)); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), name+" "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("%s tells no metric %s", s.Name, name)
}
