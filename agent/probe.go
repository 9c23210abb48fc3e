package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// probeBody is how many bytes of an HTTP answer's body a check reads. The check ignores these bytes, but it fails if
// they can't be read.
const probeBody = 4 << 10

// runner executes a command beside a program; see Task.Exec.
type runner func(context.Context, driver.Command) (code int, err error)

func newProber(v values, a transport.Assignment, run runner) prober {
	return func(ctx context.Context, c model.CheckSpec) error {
		switch c.Kind {
		case model.CheckHTTP, model.CheckTCP:
			port, known := a.Ports[c.Port]
			if !known {
				return fmt.Errorf("the group has no port %q", c.Port)
			}
			return probePort(ctx, c, hostPort(v.node.address, port), v)
		case model.CheckExec:
			return probeExec(ctx, c, v, run)
		}
		return fmt.Errorf("checks of type %q are unknown to this agent", c.Kind)
	}
}

func probePort(ctx context.Context, c model.CheckSpec, address string, v values) error {
	if c.Kind == model.CheckHTTP {
		path, err := v.expand("path of the check", c.Path)
		if err != nil {
			return err
		}
		return probeHTTP(ctx, c, address, path)
	}
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return plain(ctx, c.Timeout, err)
	}
	return conn.Close()
}

// probeHTTP requires a status from 200 to 399, and follows no redirect.
func probeHTTP(ctx context.Context, c model.CheckSpec, address, path string) error {
	status, _, err := getHTTP(ctx, address, path, probeBody)
	switch {
	case err != nil:
		return plain(ctx, c.Timeout, err)
	case status < 200 || status > 399:
		return fmt.Errorf("status %d", status)
	}
	return nil
}

// getHTTP sends one request and returns the status and the beginning of the body, at most limit bytes. Each request has
// its own connection, because a kept connection would still work when no new client can connect.
func getHTTP(ctx context.Context, address, path string, limit int64) (status int, body []byte, err error) {
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("User-Agent", "outspan-check")
	tr := &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10, Proxy: nil}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(io.LimitReader(resp.Body, limit))
	return resp.StatusCode, body, err
}

func probeExec(ctx context.Context, c model.CheckSpec, v values, run runner) error {
	argv, err := v.expandAll("command of the check, word", c.Command)
	if err != nil {
		return err
	}
	output := &prefix{left: execOutput}
	code, err := run(ctx, driver.Command{Argv: argv, Stdout: output, Stderr: output})
	switch {
	case err != nil:
		return plain(ctx, c.Timeout, err)
	case code != 0:
		return exitError(code, output.String())
	}
	return nil
}

func exitError(code int, output string) error {
	return fmt.Errorf("exit code %d%s", code, firstLine(output))
}

// firstLine returns the first line of a command's output, shortened, quoted and in parentheses, after a space. It
// returns "" if there is no output.
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

// plain returns err without the addresses of a network error. The prober's own port changes with each probe, and would
// change the text of the same failure. If ctx has ended, plain returns an error that names limit.
func plain(ctx context.Context, limit model.Duration, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("no answer within %s", limit)
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return fmt.Errorf("%s: %w", op.Op, op.Err)
	}
	return err
}
