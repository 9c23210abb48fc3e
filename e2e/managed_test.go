package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// shortProgram builds the program with certificates that last only minutes, so that they are renewed during a test. The
// version tells builds apart.
func shortProgram(t testing.TB, version string) string {
	t.Helper()
	dir := "/tmp/" + runName()
	if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0o755)); err != nil { // instances run as other users
		t.Fatal(err)
	}
	path := filepath.Join(dir, "outspan")
	cmd := exec.Command("go", "build", "-trimpath", "-tags", "shortlived", "-ldflags", "-X main.version="+version,
		"-o", path, "github.com/outspan/outspan/cmd/outspan")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := output(cmd, 5*time.Minute); err != nil {
		t.Fatalf("build the program %s: %v\n%s", version, err, out)
	}
	return path
}

// setUp runs outspan up or outspan join, with a token on its standard input. The error has what the command printed.
func setUp(token string, command ...string) error {
	cmd := exec.Command(command[0], command[1:]...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(token+"\n"), &out, &errs
	err := runWithin(cmd, time.Minute)
	var r setupReply
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &r)
	}
	if err != nil {
		return fmt.Errorf("%s: %w\n%s%s", strings.Join(command, " "), err, out.Bytes(), errs.Bytes())
	}
	return nil
}

// refusedWith reports whether an error of setUp has the code of a refusal.
func refusedWith(err error, code string) bool {
	return strings.Contains(err.Error(), fmt.Sprintf("\"code\":%q", code))
}

// found sets the member's machine up as the first server of a managed cluster, and starts nothing.
func (m *member) found() error {
	command := append([]string{m.c.bin, "up", "--no-agent", "--no-start", "--json"}, m.machine()...)
	return setUp("", m.inSpace(command...)...)
}

// join sets the member's machine up as a member of its managed cluster, and starts nothing. It asks all other servers
// that run. After an error it may be called again with the same token.
func (m *member) join(token string) error {
	return m.joinAt(token, slices.DeleteFunc(without(m.c.servers, m), func(s *member) bool { return !s.Running() })...)
}

// joinAt is join that asks some servers only.
func (m *member) joinAt(token string, servers ...*member) error {
	command := append([]string{m.c.bin, "join", "--token-file", "-", "--no-start", "--json"}, m.machine()...)
	if m.role == "server" {
		command = append(command, "--server", "--no-agent")
	}
	for _, s := range servers {
		command = append(command, s.api())
	}
	return setUp(token, m.inSpace(command...)...)
}

// tls returns the directory with the certificate and the key of a member of a managed cluster.
func (m *member) tls() string { return transport.ManagedDir(m.data()).Path() }

// certificate returns the lifetime of the certificate in the files of a member of a managed cluster.
func (m *member) certificate() (transport.Lifetime, error) {
	pair, found, err := transport.ManagedDir(m.data()).Pair(pki.Role(m.role))
	switch {
	case err != nil:
		return transport.Lifetime{}, err
	case !found:
		return transport.Lifetime{}, fmt.Errorf("%s has no certificate", m.Name)
	}
	return transport.LifetimeOf(pair.Leaf), nil
}
