package client_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// serveTLS serves https with a new certificate of the CA in dir until the test ends. All answers contain name.
func serveTLS(t *testing.T, dir string, role pki.Role, name string) (address string) {
	t.Helper()
	files, err := transport.IssueCert(dir, transport.CertRequest{Role: role, Name: name}, false)
	if err != nil {
		t.Fatal(err)
	}
	creds, err := transport.LoadCredentials(transport.CredentialsConfig{CAFile: filepath.Join(dir, "ca.pem"),
		CertFile: files.Cert, KeyFile: files.Key})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := transport.ListenTCP(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := transport.NewListener(raw, transport.ListenerConfig{Credentials: creds})
	if err != nil {
		t.Fatal(err)
	}
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"name":"`+name+`"}`) })
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = l.Run(ctx) })
	running.Go(func() {
		_ = transport.NewHTTPServer(h, transport.HTTPConfig{ShutdownTimeout: time.Second}).Run(ctx, l.API())
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return "https://" + l.Addr().String()
}

// makeCA makes a CA in a new directory, and a certificate for the client.
func makeCA(t *testing.T, cluster string) (dir string, files client.Files) {
	t.Helper()
	dir = t.TempDir()
	if _, err := transport.CreateCA(dir, transport.CAOptions{Cluster: cluster}); err != nil {
		t.Fatal(err)
	}
	cert, err := transport.IssueCert(dir, transport.CertRequest{Role: pki.RoleCLI, Name: "ops"}, false)
	if err != nil {
		t.Fatal(err)
	}
	return dir, client.Files{CA: filepath.Join(dir, "ca.pem"), Cert: cert.Cert, Key: cert.Key}
}

func TestTLS(t *testing.T) {
	dir, files := makeCA(t, "east")
	call := func(address string, files client.Files) (client.Response[api.Health], error) {
		t.Helper()
		tls, err := client.LoadTLS(files)
		if err != nil {
			t.Fatal(err)
		}
		c, err := client.New(client.Config{Addresses: []string{address}, TLS: tls, RetryFor: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return c.Cluster.Alive(t.Context())
	}
	server := serveTLS(t, dir, pki.RoleServer, "s1")
	if got, err := call(server, files); err != nil || got.Value.Name != "s1" {
		t.Errorf("got %+v: %v", got, err)
	}
	_, err := call(serveTLS(t, dir, pki.RoleAgent, "n1"), files)
	wantCode(t, err, model.CodeCertificateRefused) // the peer is an agent, not a server
	_, others := makeCA(t, "east")
	_, err = call(server, others)
	wantCode(t, err, model.CodeCertificateRefused) // the client and the server trust different CAs
}

// The client refuses a server of another cluster even if the client trusts that cluster's CA.
func TestTLSOfAnotherCluster(t *testing.T) {
	_, files := makeCA(t, "east")
	west, theirs := makeCA(t, "west")
	var bundle []byte
	for _, path := range []string{files.CA, theirs.CA} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bundle = append(bundle, text...)
	}
	files.CA = filepath.Join(t.TempDir(), "both.pem")
	if err := os.WriteFile(files.CA, bundle, 0o600); err != nil {
		t.Fatal(err)
	}
	tls, err := client.LoadTLS(files)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(client.Config{Addresses: []string{serveTLS(t, west, pki.RoleServer, "s1")},
		TLS: tls, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.Cluster.Alive(t.Context())
	wantCode(t, err, model.CodeCertificateRefused)
	if err == nil || !strings.Contains(err.Error(), `server/s1 is of cluster "west", this is cluster "east"`) {
		t.Errorf("got %v, want the name of the other cluster", err)
	}
}

func TestTLSIsChecked(t *testing.T) {
	_, files := makeCA(t, "east")
	_, otherFiles := makeCA(t, "east")
	for name, wrong := range map[string]client.Files{
		"no CA":         {CA: files.CA + "x", Cert: files.Cert, Key: files.Key},
		"CA without":    {CA: files.Key, Cert: files.Cert, Key: files.Key},
		"no key":        {CA: files.CA, Cert: files.Cert},
		"not its key":   {CA: files.CA, Cert: files.CA, Key: files.Key},
		"nothing named": {},
		"another CA":    {CA: otherFiles.CA, Cert: files.Cert, Key: files.Key},
	} {
		if _, err := client.LoadTLS(wrong); err == nil {
			t.Errorf("%s: no error", name)
		} else {
			wantCode(t, err, model.CodeCertificateInvalid)
		}
	}
	_, err := client.New(client.Config{Addresses: []string{"https://127.0.0.1:1"}})
	wantCode(t, err, model.CodeCertificateInvalid)
}
