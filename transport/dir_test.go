package transport_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// TestOpenDirHelper runs in each process that TestOpenDirAtOnce starts. It waits for a line on stdin, opens the
// directory, and prints the CA and the key.
func TestOpenDirHelper(t *testing.T) {
	dir := os.Getenv("TEST_TLS_DIR")
	if dir == "" {
		t.Skip("it is only run by TestOpenDirAtOnce")
	}
	fmt.Println("ready")
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	ca, key, err := transport.OpenDir(dir, "c1")
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%x %s\n", ca.PEM(), key.Encode())
}

// TestOpenDirAtOnce: seven processes open one directory, which does not exist yet, at the same moment. All get the same
// CA and key.
func TestOpenDirAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "tls")
	const n = 7
	cmds, ins, outs := make([]*exec.Cmd, n), make([]*os.File, n), make([]*bytes.Buffer, n)
	ready := make([]*firstLine, n)
	for i := range n {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestOpenDirHelper$")
		cmd.Env = append(os.Environ(), "TEST_TLS_DIR="+dir)
		outs[i] = &bytes.Buffer{}
		ready[i] = &firstLine{to: outs[i], seen: make(chan struct{})}
		cmd.Stdout, cmd.Stderr = ready[i], os.Stderr
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd.Stdin, ins[i], cmds[i] = r, w, cmd
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		r.Close()
	}
	for _, r := range ready {
		select {
		case <-r.seen:
		case <-time.After(30 * time.Second):
			t.Fatal("a process did not start in 30 s")
		}
	}
	for _, in := range ins {
		fmt.Fprintln(in, "go")
		in.Close()
	}
	var first string
	for i, cmd := range cmds {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("process %d: %v\n%s", i, err, outs[i])
		}
		got := strings.Split(outs[i].String(), "\n")[1]
		if first == "" {
			first = got
		}
		if got != first || len(got) < 100 {
			t.Errorf("process %d got another CA or key", i)
		}
	}
	want := map[string]string{"ca.pem": "-rw-r--r--", "ca-key.pem": "-rw-------", "gossip.key": "-rw-------"}
	if d := cmp.Diff(want, modes(t, dir)); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	if got := must(os.Stat(dir))(t).Mode().Perm(); got != 0o700 {
		t.Errorf("directory has mode %04o, want 0700", got)
	}
}

// firstLine writes to a buffer. Its channel seen is closed at the first write.
type firstLine struct {
	to   *bytes.Buffer
	once sync.Once
	seen chan struct{}
}

func (f *firstLine) Write(b []byte) (int, error) {
	n, err := f.to.Write(b)
	f.once.Do(func() { close(f.seen) })
	return n, err
}

func TestOpenDirGoroutinesAtOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tls")
	const n = 16
	got := make([]string, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			ca, key, err := transport.OpenDir(dir, "")
			if err != nil {
				t.Error(err)
				return
			}
			got[i] = string(ca.PEM()) + key.Encode()
		})
	}
	wg.Wait()
	for _, g := range got {
		if g != got[0] {
			t.Fatal("two openers got different files")
		}
	}
}

func TestOpenDirRefusals(t *testing.T) {
	fresh := func(t *testing.T) string {
		dir := filepath.Join(t.TempDir(), "tls")
		_, _, err := transport.OpenDir(dir, "c1")
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	t.Run("other cluster", func(t *testing.T) {
		dir := fresh(t)
		_, _, err := transport.OpenDir(dir, "c2")
		wantCode(t, err, model.CodeCertificateInvalid, dir, `cluster = "c1"`)
	})
	t.Run("key lost", func(t *testing.T) {
		dir := fresh(t)
		os.Remove(dir + "/ca-key.pem")
		_, _, err := transport.OpenDir(dir, "c1")
		wantCode(t, err, model.CodeCertificateInvalid, dir+"/ca-key.pem")
	})
	t.Run("crash between key and certificate", func(t *testing.T) {
		dir := fresh(t)
		os.Remove(dir + "/ca.pem")
		if _, _, err := transport.OpenDir(dir, "c1"); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("damaged", func(t *testing.T) {
		dir := fresh(t)
		if err := os.Truncate(dir+"/ca.pem", 100); err != nil {
			t.Fatal(err)
		}
		_, _, err := transport.OpenDir(dir, "c1")
		wantCode(t, err, model.CodeCertificateInvalid, dir)
	})
	t.Run("gossip key damaged", func(t *testing.T) {
		dir := fresh(t)
		if err := os.Truncate(dir+"/gossip.key", 5); err != nil {
			t.Fatal(err)
		}
		_, _, err := transport.OpenDir(dir, "c1")
		wantCode(t, err, model.CodeGossipKeyInvalid, dir+"/gossip.key")
	})
	t.Run("open to others", func(t *testing.T) {
		dir := fresh(t)
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		_, _, err := transport.OpenDir(dir, "c1")
		wantCode(t, err, model.CodeFile, dir, "chmod 700")
	})
	t.Run("empty and open is closed", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if _, _, err := transport.OpenDir(dir, "c1"); err != nil {
			t.Fatal(err)
		}
		if got := must(os.Stat(dir))(t).Mode().Perm(); got != 0o700 {
			t.Errorf("mode %04o, want 0700", got)
		}
	})
	t.Run("not a directory", func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "f")
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := transport.OpenDir(file, "c1")
		wantCode(t, err, model.CodeFile, file)
	})
}

// TestDirCredentials: a server and an agent that issue their own certificates with the CA of one directory trust each
// other, even after the server reloads.
func TestDirCredentials(t *testing.T) {
	cfg := transport.CredentialsConfig{Dir: filepath.Join(t.TempDir(), "tls"), Cluster: "c1",
		Role: pki.RoleServer, Name: "s1"}
	server := must(transport.LoadCredentials(cfg))(t)
	cfg.Role, cfg.Name = pki.RoleAgent, "n1"
	agent := must(transport.LoadCredentials(cfg))(t)
	s := start(t, server, stationConfig{})
	for range 2 {
		got, err := get(t.Context(), client(t, transport.Dialer{Credentials: agent}), "https://"+s.addr)
		if want := "HTTP/2.0 agent:n1"; err != nil || got != want {
			t.Fatalf("got %q, %v; want %q", got, err, want)
		}
		if err := server.Reload(); err != nil {
			t.Fatal(err)
		}
	}
	if left := time.Until(agent.NotAfter()); left < 9*365*24*time.Hour {
		t.Errorf("a certificate in memory lasts only %s", left)
	}
}
