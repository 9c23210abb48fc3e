package transport_test

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A reload that removes a CA closes the connections that this process opened to peers with certificates of that CA,
// those for raft as well as those for the API. A reload that removes no CA closes no connection.
func TestReloadEndsDialledConnections(t *testing.T) {
	oldDir, old := certFiles(t, "c1", transport.CertRequest{Role: pki.RoleServer, Name: "s1"})
	newDir, mine := certFiles(t, "c1", transport.CertRequest{Role: pki.RoleServer, Name: "s2"})
	both := slices.Concat(readAll(t, filepath.Join(oldDir, "ca.pem")), readAll(t, filepath.Join(newDir, "ca.pem")))
	latest := readAll(t, filepath.Join(newDir, "ca.pem"))
	writeAll(t, map[string][]byte{old.CAFile: both, mine.CAFile: both})

	theirs := start(t, must(transport.LoadCredentials(old))(t), stationConfig{})
	creds := must(transport.LoadCredentials(mine))(t)
	echoRaft(t, theirs)
	own := start(t, creds, stationConfig{})
	d := transport.Dialer{Credentials: creds}
	conns := map[string]net.Conn{
		"api":            must(d.DialAPI(t.Context(), "tcp", theirs.addr))(t),
		"raft":           must(d.DialRaft(t.Context(), theirs.addr))(t),
		"raft of a pool": must(own.raft.DialRaft(theirs.addr, time.Second))(t),
	}
	c := client(t, d)
	ask := func() error {
		_, err := get(t.Context(), c, "https://"+theirs.addr)
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "two connections to the API", func() bool { return theirs.Stats().API == 2 })
	open := theirs.Stats().API
	if err := own.Reload(); err != nil {
		t.Fatal(err)
	}
	for name, conn := range conns {
		if name != "api" {
			if err := ping(conn); err != nil {
				t.Errorf("%s: after a reload that took no CA away: %v", name, err)
			}
		}
	}
	if err := ask(); err != nil || theirs.Stats().API != open {
		t.Errorf("%d connections are open after a reload that took no CA away, want %d: %v", theirs.Stats().API, open, err)
	}

	writeAll(t, map[string][]byte{mine.CAFile: latest})
	if err := own.Reload(); err != nil {
		t.Fatal(err)
	}
	for name, conn := range conns {
		if err := conn.SetReadDeadline(time.Now().Add(15 * time.Second)); err == nil {
			_, err = io.Copy(io.Discard, conn)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%s: the connection to a peer whose CA was removed goes on", name)
			}
		}
		_ = conn.Close()
	}
	eventually(t, "the end of the API's connection", func() bool { return theirs.Stats().API == 0 })
	wantCode(t, ask(), model.CodeCertificateRefused)
}
