package e2e

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
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"
)

const commandLimit = 2 * time.Minute

type result struct {
	args     []string
	out, err string
	code     int
}

func (r result) String() string {
	return fmt.Sprintf("outspan %s: exit code %d\n%s%s", strings.Join(r.args, " "), r.code, r.out, r.err)
}

// environment returns the variables by which a command finds the cluster, as a user would set them. A command reaches
// the servers by their unix sockets if the cluster has network namespaces or manages its certificates, and otherwise by
// TLS.
func (c *cluster) environment() []string {
	var addresses []string
	for _, s := range c.servers {
		if c.network == nil && !c.options.managed {
			addresses = append(addresses, "https://"+s.api())
		} else {
			addresses = append(addresses, "unix://"+s.socket())
		}
	}
	return []string{
		"OUTSPAN_ADDR=" + strings.Join(addresses, ","), "OUTSPAN_CACERT=" + c.path("tls", "ca.pem"),
		"OUTSPAN_CLIENT_CERT=" + c.path("tls", "cli-me.pem"),
		"OUTSPAN_CLIENT_KEY=" + c.path("tls", "cli-me-key.pem"), "NO_COLOR=1",
	}
}

// cli runs a command as a user would.
func (c *cluster) cli(t testing.TB, args ...string) result {
	t.Helper()
	return c.cliWith(t, nil, args...)
}

// cliWith is like cli, with some environment variables added or replaced.
func (c *cluster) cliWith(t testing.TB, env []string, args ...string) result {
	t.Helper()
	cmd := exec.Command(c.bin, args...)
	cmd.Env = slices.Concat(os.Environ(), c.environment(), env)
	cmd.Dir = c.dir
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := runWithin(cmd, commandLimit)
	r := result{args: args, out: out.String(), err: errs.String()}
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && !errors.Is(err, context.DeadlineExceeded):
		r.code = exit.ExitCode()
	case err != nil:
		t.Errorf("%v: %v", r, err)
		r.code = -1
	}
	return r
}

// must runs a command that must succeed, and returns its output.
func (c *cluster) must(t testing.TB, args ...string) string {
	t.Helper()
	r := c.cli(t, args...)
	if r.code != 0 {
		t.Fatalf("%v", r)
	}
	return r.out
}

// mustJSON runs a command with --json that must succeed, and decodes its output.
func (c *cluster) mustJSON(t testing.TB, into any, args ...string) {
	t.Helper()
	out := c.must(t, append(slices.Clone(args), "--json")...)
	if err := json.Unmarshal([]byte(out), into); err != nil {
		t.Fatalf("outspan %s: %v in\n%s", strings.Join(args, " "), err, out)
	}
}

// refused runs a command that must fail with the given exit code and with each of the words on stderr.
func (c *cluster) refused(t testing.TB, code int, words []string, args ...string) result {
	t.Helper()
	r := c.cli(t, args...)
	r.want(t, code, words...)
	return r
}

// want asserts the exit code of a command, and that its stderr contains each of the words.
func (r result) want(t testing.TB, code int, words ...string) {
	t.Helper()
	if r.code != code {
		t.Errorf("exit code %d, want %d, of %v", r.code, code, r)
		return
	}
	for _, word := range words {
		if !strings.Contains(r.err, word) {
			t.Errorf("stderr does not say %q: %v", word, r)
		}
	}
}

// answered is an HTTP answer with its whole body.
type answered struct {
	status int
	header http.Header
	body   []byte
}

// request sends one request to a member's socket. It returns an error only if there is no complete answer within 10 s.
func (m *member) request(method, path string, body io.Reader, header http.Header) (answered, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, "http://outspan"+path, body)
	if err != nil {
		return answered{}, err
	}
	if header != nil {
		r.Header = header
	}
	transport := &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", m.socket())
		}}
	return ask(&http.Client{Transport: transport}, r)
}

func ask(client *http.Client, r *http.Request) (answered, error) {
	resp, err := client.Do(r)
	if err != nil {
		return answered{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return answered{}, err
	}
	return answered{resp.StatusCode, resp.Header, text}, nil
}

// get reads a path from one member and decodes the JSON of the answer. If into is a *string, the whole body is stored
// in it. If into is nil, the body is dropped. A status other than 200 is an error.
func (m *member) get(path string, into any) error {
	a, err := m.request(http.MethodGet, path, nil, nil)
	if err != nil {
		return err
	}
	if a.status != http.StatusOK {
		return fmt.Errorf("GET %s: %d %s", path, a.status, a.body)
	}
	if into == nil {
		return nil
	}
	if text, ok := into.(*string); ok {
		*text = string(a.body)
		return nil
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return fmt.Errorf("GET %s: %w in %s", path, err, a.body)
	}
	return nil
}

// get reads a path from the first running server that answers 200.
func (c *cluster) get(path string, into any) error {
	failed := errors.New("no server runs")
	for _, s := range c.servers {
		if !s.Running() {
			continue
		}
		err := s.get(path, into)
		if err == nil {
			return nil
		}
		failed = err
	}
	return failed
}

// mustGet reads a path from any server. After an error it tries again. If no try succeeds within the limit patience,
// the test fails.
func (c *cluster) mustGet(t testing.TB, path string, into any) {
	t.Helper()
	waitFor(t, "an answer to GET "+path, patience, func() error { return c.get(path, into) })
}

// post sends JSON to the first server that answers at all, even with an error.
func (c *cluster) post(path, body string) (answered, error) {
	failed := errors.New("no server runs")
	for _, s := range c.servers {
		if !s.Running() {
			continue
		}
		a, err := s.request(http.MethodPost, path, strings.NewReader(body), http.Header{"Content-Type": {"application/json"}})
		if err == nil {
			return a, nil
		}
		failed = err
	}
	return answered{}, failed
}
