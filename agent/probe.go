package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/transport"
)

// A check reads at most this much of an answer; only the status of it counts.
const probeBody = 4 << 10

// newProber makes the prober of one program. run executes a command beside it.
func newProber(v values, a transport.Assignment, run func(ctx context.Context, argv []string) (int, string, error)) prober {
	return func(ctx context.Context, c fsm.CheckSpec) error {
		switch c.Kind {
		case fsm.CheckHTTP, fsm.CheckTCP:
			port, known := a.Ports[c.Port]
			if !known {
				return fmt.Errorf("the group has no port %q", c.Port)
			}
			return probePort(ctx, c, hostPort(v.node.address, port), v)
		case fsm.CheckExec:
			return probeExec(ctx, c, v, run)
		}
		return fmt.Errorf("checks of type %q are unknown to this agent", c.Kind)
	}
}

func probePort(ctx context.Context, c fsm.CheckSpec, address string, v values) error {
	if c.Kind == fsm.CheckHTTP {
		path, err := v.expand("path of the check", c.Path)
		if err != nil {
			return err
		}
		return probeHTTP(ctx, c, address, path)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return plain(ctx, c, err)
	}
	return conn.Close()
}

// probeHTTP wants a status from 200 to 399, and follows no redirect. Each probe is a connection of its own: one that
// is kept would go on passing when nobody new can connect.
func probeHTTP(ctx context.Context, c fsm.CheckSpec, address, path string) error {
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("User-Agent", "outspan-check")
	tr := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10, Proxy: nil}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return plain(ctx, c, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 200 || resp.StatusCode > 399 {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	if _, err := io.CopyN(io.Discard, resp.Body, probeBody); err != nil && !errors.Is(err, io.EOF) {
		return plain(ctx, c, err)
	}
	return nil
}

func probeExec(ctx context.Context, c fsm.CheckSpec, v values, run func(context.Context, []string) (int, string, error)) error {
	argv, err := v.expandAll("command of the check, word", c.Command)
	if err != nil {
		return err
	}
	code, output, err := run(ctx, argv)
	switch {
	case err != nil:
		return plain(ctx, c, err)
	case code != 0:
		return fmt.Errorf("exit code %d%s", code, firstLine(output))
	}
	return nil
}

// firstLine is what a person needs of a command's output, in brackets.
func firstLine(output string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(output), "\n")
	if line == "" {
		return ""
	}
	if len(line) > 100 {
		line = line[:100] + "..."
	}
	return fmt.Sprintf(" (%q)", line)
}

// plain shortens what the network says to what differs from probe to probe of a person's view: addresses and ports of
// the prober's own end change each time and tell nothing.
func plain(ctx context.Context, c fsm.CheckSpec, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %s", c.Timeout)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return err
}
