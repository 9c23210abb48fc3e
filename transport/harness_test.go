package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// wantCode fails the test unless err is a *model.Error with the given code, and its text contains each of parts.
func wantCode(t testing.TB, err error, code model.Code, parts ...string) {
	t.Helper()
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got error %v, want code %s", err, code)
	}
	for _, p := range parts {
		if !strings.Contains(e.Error(), p) {
			t.Errorf("error %q does not say %q", e, p)
		}
	}
}

// eventually calls ok until it returns true, and fails the test after 15 s.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(15 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s: did not happen in 15 s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func authority(t testing.TB, cluster string) *transport.Authority {
	t.Helper()
	return must(transport.NewAuthority(cluster, 0))(t)
}

func credentials(t testing.TB, ca *transport.Authority, role pki.Role, name string) *transport.Credentials {
	t.Helper()
	return must(ca.Credentials(role, name))(t)
}

// station is the port of one server process, with raft and the API on it.
type station struct {
	*transport.Listener
	addr    string
	raft    *transport.RaftStream
	stopAPI func() error
	stop    func() error
}

type stationConfig struct {
	raw      net.Listener
	dial     func(context.Context, string, string) (net.Conn, error)
	listener transport.ListenerConfig
	http     transport.HTTPConfig
	handler  http.Handler
}

// start runs a station until the test ends.
func start(t testing.TB, creds *transport.Credentials, cfg stationConfig) *station {
	t.Helper()
	if cfg.raw == nil {
		cfg.raw = must(transport.ListenTCP(t.Context(), "127.0.0.1:0"))(t)
	}
	if cfg.handler == nil {
		cfg.handler = http.HandlerFunc(whoami)
	}
	cfg.listener.Credentials = creds
	l := must(transport.NewListener(cfg.raw, cfg.listener))(t)
	s := &station{Listener: l, addr: l.Addr().String()}
	s.raft = l.Raft(transport.Dialer{Credentials: creds, Dial: cfg.dial}, "")
	api := transport.NewHTTPServer(cfg.handler, cfg.http)
	s.stop = background(l.Run)
	s.stopAPI = background(func(ctx context.Context) error { return api.Run(ctx, l.API()) })
	t.Cleanup(func() {
		s.stopAPI()
		if err := s.stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// background calls run in a goroutine. The returned function cancels the context of run, waits until run has returned,
// and returns its error. Further calls return the same error.
func background(run func(context.Context) error) func() error {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	var err error
	go func() {
		defer close(done)
		err = run(ctx)
	}()
	return func() error {
		cancel()
		<-done
		return err
	}
}

// whoami answers with the protocol and the caller.
func whoami(w http.ResponseWriter, r *http.Request) {
	who, ok := transport.SubjectFrom(r.Context())
	if !ok {
		http.Error(w, "nobody", http.StatusForbidden)
		return
	}
	fmt.Fprintf(w, "%s %s", r.Proto, who)
}

// client returns an http.Client whose idle connections are closed when the test ends.
func client(t testing.TB, d transport.Dialer) *http.Client {
	tr := d.HTTPTransport()
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 90 * time.Second}
}

func get(ctx context.Context, c *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return string(b), err
}

// echoRaft sends back what each accepted raft connection sends, until the test ends.
func echoRaft(t testing.TB, s *station) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := s.raft.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				io.Copy(c, c)
			})
		}
	})
	t.Cleanup(func() {
		s.raft.Close()
		wg.Wait()
	})
}

// ping sends a word over a raft connection and expects it back.
func ping(c net.Conn) error {
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, "ping"); err != nil {
		return err
	}
	b := make([]byte, 4)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != "ping" {
		return fmt.Errorf("got %q back", b)
	}
	return nil
}

// certFiles makes a CA and one certificate in a directory, and returns the config that loads them.
func certFiles(t testing.TB, cluster string, r transport.CertRequest) (dir string, cfg transport.CredentialsConfig) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "certs")
	must(transport.CreateCA(dir, transport.CAOptions{Cluster: cluster}))(t)
	files := must(transport.IssueCert(dir, r, false))(t)
	return dir, transport.CredentialsConfig{CAFile: filepath.Join(dir, "ca.pem"), CertFile: files.Cert, KeyFile: files.Key}
}

func writeAll(t testing.TB, files map[string][]byte) {
	t.Helper()
	for path, data := range files {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func readAll(t testing.TB, path string) []byte {
	t.Helper()
	return must(os.ReadFile(path))(t)
}

func copyFile(t testing.TB, from, to string) {
	t.Helper()
	writeAll(t, map[string][]byte{to: readAll(t, from)})
}

// mustAuthority opens the CA of a directory that CreateCA made for the cluster c1.
func mustAuthority(t testing.TB, dir string) *transport.Authority {
	t.Helper()
	ca, _, err := transport.OpenDir(dir, "c1")
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// agentServer starts a server that passes agents' calls to the function answer, until the test ends.
func agentServer(t testing.TB, ca *transport.Authority, answer transport.AnswerAgent) *station {
	t.Helper()
	return start(t, credentials(t, ca, pki.RoleServer, "s1"),
		stationConfig{http: transport.HTTPConfig{Agents: answer, ShutdownTimeout: 5 * time.Second}})
}
