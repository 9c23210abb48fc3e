package image_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/model"
)

// An error of a registry says what helps, with the files of this machine. A registry that does not answer, or not now,
// has a code of its own.
func TestAdvice(t *testing.T) {
	answers := func(status int) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(status)
		})
	}
	plain := func(status int) string {
		s := httptest.NewServer(answers(status))
		t.Cleanup(s.Close)
		return s.URL
	}
	private := httptest.NewTLSServer(answers(http.StatusOK))
	t.Cleanup(private.Close)
	gone := httptest.NewServer(answers(http.StatusOK))
	gone.Close()
	const unresolved, unreachable = image.CodeUnresolved, image.CodeUnreachable
	for _, tt := range []struct {
		what, url, login string
		code             model.Code
		hint             string
	}{
		{"no TLS", strings.Replace(plain(http.StatusOK), "http:", "https:", 1), "", unresolved,
			`without TLS it needs [host."http://registry.test"] in CERTS/registry.test/hosts.toml`},
		{"another CA", private.URL, "", unresolved, "name its CA in CERTS/registry.test/hosts.toml"},
		{"no login", plain(http.StatusUnauthorized), "", unresolved, "name a file in docker_config of the agent's block"},
		{"a wrong login", plain(http.StatusForbidden), "/login.json", unresolved,
			"the credentials for registry.test in /login.json"},
		{"no such image", plain(http.StatusNotFound), "", unresolved, "check the name and the tag"},
		{"overloaded", plain(http.StatusServiceUnavailable), "", unreachable, ""},
		{"down", gone.URL, "", unreachable, ""},
	} {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, "registry.test"), 0o755))
		hosts := "server = \"" + tt.url + "\"\n[host.\"" + tt.url + "\"]\ncapabilities = [\"pull\", \"resolve\"]\n"
		must(t, os.WriteFile(filepath.Join(dir, "registry.test", "hosts.toml"), []byte(hosts), 0o600))
		_, err := image.Config{CertsDir: dir, DockerConfig: tt.login}.Resolve(t.Context(), "registry.test/web:1")
		refusal, ok := errors.AsType[*model.Error](err)
		if !ok || refusal.Code != tt.code || (tt.hint == "") != (refusal.Hint == "") ||
			!strings.Contains(strings.ReplaceAll(refusal.Hint, dir, "CERTS"), tt.hint) {
			t.Errorf("%s: %#v", tt.what, err)
		}
	}
}

// What only a person can mend, such as a file that is missing here, is no registry that does not answer.
func TestMissingFileIsNoSilence(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "registry.test"), 0o755))
	hosts := "[host.\"https://127.0.0.1:1\"]\ncapabilities = [\"pull\", \"resolve\"]\nca = \"/none.pem\"\n"
	must(t, os.WriteFile(filepath.Join(dir, "registry.test", "hosts.toml"), []byte(hosts), 0o600))
	_, err := image.Config{CertsDir: dir}.Resolve(t.Context(), "registry.test/web:1")
	if !errors.Is(err, &model.Error{Code: image.CodeUnresolved}) {
		t.Errorf("%#v", err)
	}
}

// While containerd does not answer, an error says why in few words.
func TestSilence(t *testing.T) {
	dir, err := os.MkdirTemp("", "ctrd-") //nolint:usetesting // a socket's path must be short
	must(t, err)
	defer os.RemoveAll(dir)
	silent, err := net.Listen("unix", filepath.Join(dir, "silent")) // accepts, because of its backlog
	must(t, err)
	defer silent.Close()
	left, err := net.Listen("unix", filepath.Join(dir, "left"))
	must(t, err)
	left.(*net.UnixListener).SetUnlinkOnClose(false) //nolint:forcetypeassert // it is one
	must(t, left.Close())
	for name, want := range map[string]string{
		"none": "there is no such socket, so it does not run, or listens elsewhere", "left": "it does not run",
		"silent": "it accepts connections and says nothing",
	} {
		socket := filepath.Join(dir, name)
		s, ctx := open(t, image.Config{Socket: socket, Namespace: "outspan-test"})
		_, err := s.Have(ctx, "sha256:"+strings.Repeat("a", 64))
		refusal, ok := errors.AsType[*model.Error](err)
		if full := "containerd at " + socket + " does not answer: " + want; !ok || refusal.Message != full {
			t.Errorf("%s: %v, want %s", name, err, full)
		}
	}
}

// An image that was pulled by its digest is listed with the tags by which it was asked for.
func TestTags(t *testing.T) {
	s, ctx := open(t, image.Config{Socket: daemon(t).Socket, Namespace: "outspan-test"})
	one, name := served(t)
	for _, step := range []struct{ tag, want string }{
		{"", name}, {":1", name + ":1"}, {":1", name + ":1"},
		{":2", name + ":1 " + name + ":2"}, {"", name + ":1 " + name + ":2"},
	} {
		must(t, s.Pull(ctx, name+step.tag+"@"+one.Digest, nil))
		found, err := s.Survey(ctx)
		must(t, err)
		if got := strings.Join(found.Images[0].Names, " "); got != step.want {
			t.Errorf("after a pull of %q: %s, want %s", step.tag, got, step.want)
		}
	}
}
