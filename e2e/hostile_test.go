package e2e

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"
)

// tlsConfig returns the configuration of a client with one of the cluster's certificates. If certificate is "", the
// client has none.
func (c *cluster) tlsConfig(t testing.TB, certificate string, protocols ...string) *tls.Config {
	t.Helper()
	cfg, err := c.readTLSConfig(certificate, protocols...)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func (c *cluster) readTLSConfig(certificate string, protocols ...string) (*tls.Config, error) {
	ca, err := os.ReadFile(c.path("tls", "ca.pem"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	cfg := &tls.Config{RootCAs: roots, ServerName: "server.outspan", NextProtos: protocols, MinVersion: tls.VersionTLS13}
	if certificate != "" {
		pair, err := tls.LoadX509KeyPair(c.path("tls", certificate+".pem"), c.path("tls", certificate+"-key.pem"))
		if err != nil {
			return nil, err
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

// postTLS sends JSON to the leader over the network, as a script with a certificate would.
func (c *cluster) postTLS(t testing.TB, path, body string) answered {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+c.leader(t).api()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	transport := &http.Transport{TLSClientConfig: c.tlsConfig(t, "cli-me"), DisableKeepAlives: true}
	a, err := ask(&http.Client{Transport: transport}, r)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// undisturbed calls deed and asserts that it disturbs nothing: the same processes run, the same server leads, the
// servers hear all nodes, and no object changes.
func (c *cluster) undisturbed(t *testing.T, deed func()) {
	t.Helper()
	leader, running := c.leader(t), identities(c.instances())
	c.unchanged(t, func() {
		deed()
		for _, m := range c.members() {
			if !m.Running() {
				t.Errorf("%s has ended:\n%s", m.Name, m.LastLines(20))
			}
		}
		c.waitHeard(t)
	})
	if now := c.leader(t); now != leader {
		t.Errorf("the leader was %s and is %s", leader.Name, now.Name)
	}
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("before %v, now %v", running, now)
	}
}

// Random bytes are sent to all ports and sockets of all members, and to the servers also after a TLS handshake, with
// and without a certificate. They disturb nothing.
func testGarbage(t *testing.T, c *cluster) {
	c.run(t, job{name: "web", count: 4})
	c.undisturbed(t, func() {
		for _, m := range c.members() {
			for _, network := range []string{"tcp", "udp"} {
				for _, size := range []int{1, 64, 1400, 60000} {
					c.spit(t, network, net.JoinHostPort(m.address, "7642"), size)
				}
			}
			c.spit(t, "tcp", m.api(), 1)
			c.spit(t, "tcp", m.api(), 100_000)
			c.spitText(t, "tcp", m.api(), "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			c.spit(t, "unix", m.socket(), 100_000)
		}
		for _, m := range c.servers {
			for _, certificate := range []string{"", "cli-me", "agent-n1", "server-s1"} {
				for _, protocol := range []string{"outspan-raft/1", "http/1.1", "h2", "nonsense"} {
					c.spitTLS(t, m.api(), certificate, protocol)
				}
			}
		}
	})
}

// spit sends random bytes and ignores the answer.
func (c *cluster) spit(t testing.TB, network, address string, size int) {
	t.Helper()
	noise := make([]byte, size)
	if _, err := rand.Read(noise); err != nil {
		t.Fatal(err)
	}
	c.spitText(t, network, address, string(noise))
}

func (c *cluster) spitText(t testing.TB, network, address, text string) {
	t.Helper()
	conn, err := net.DialTimeout(network, address, 5*time.Second)
	if err != nil {
		t.Errorf("%s %s: %v", network, address, err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
	_, _ = io.WriteString(conn, text)
	if network != "udp" {
		_, _ = io.Copy(io.Discard, conn)
	}
}

// spitTLS sends random bytes after a TLS handshake. If the server refuses the handshake, it sends nothing.
func (c *cluster) spitTLS(t testing.TB, address, certificate, protocol string) {
	t.Helper()
	dialer := &net.Dialer{Timeout: 5 * time.Second}
	conn, err := tls.DialWithDialer(dialer, "tcp", address, c.tlsConfig(t, certificate, protocol))
	if err != nil {
		return // the server may refuse the handshake
	}
	defer conn.Close()
	noise := make([]byte, 5000)
	_, _ = rand.Read(noise)
	_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
	_, _ = conn.Write(noise)
	_, _ = io.Copy(io.Discard, conn)
}

// While 1,000 connections are open, the servers still serve clients with a certificate. The servers close connections
// on which nothing is sent.
func testConnections(t *testing.T, c *cluster) {
	port := c.freePort(t)
	c.run(t, job{name: "web", count: 4, expose: port})
	var idle []net.Conn
	defer func() {
		for _, conn := range idle {
			conn.Close()
		}
	}()
	stop := c.probe(port, c.agents...)
	c.undisturbed(t, func() {
		for i := range 1000 {
			conn, err := net.DialTimeout("tcp", c.servers[i%3].api(), 5*time.Second)
			if err != nil {
				continue // refused
			}
			idle = append(idle, conn)
		}
		t.Logf("%d connections were opened", len(idle))
		for range 3 {
			began := time.Now()
			c.must(t, "node", "ls")
			if took := time.Since(began); took > 5*time.Second {
				t.Errorf("a command took %s", took)
			}
		}
	})
	stop().perfect(t)
	c.agents[1].Kill()
	c.agents[1].start(t)
	c.waitEligible(t, c.agents...)
	for _, conn := range idle[:min(3, len(idle))] {
		_ = conn.SetReadDeadline(time.Now().Add(patience))
		if _, err := bufio.NewReader(conn).ReadByte(); err == nil || strings.Contains(err.Error(), "timeout") {
			t.Errorf("a connection that says nothing is still open: %v", err)
		}
	}
}

// testSecrets checks that no value of a job's env is in an error, an event, a metric or a log line.
func testSecrets(t *testing.T, c *cluster) {
	const secret = "correct-horse-battery-staple"
	c.run(t, job{name: "vault", count: 2, more: fmt.Sprintf("    env = { PASSWORD = %q }", secret)})
	found := 0
	for _, ps := range c.instancesOf("vault") {
		if environment(ps[0])["PASSWORD"] == secret {
			found++
		}
	}
	if found != 2 {
		t.Fatalf("%d of 2 instances have the secret", found)
	}
	bad := c.writeText(t, "leak.hcl",
		strings.Replace(job{name: "leak", count: 1}.hcl(c.bin), "count =",
			fmt.Sprintf("env = { PASSWORD = %q }\n    conut =", secret), 1))
	r := c.cli(t, "job", "run", bad)
	a := c.postTLS(t, "/v1/jobs",
		fmt.Sprintf(`{"name":"x","groups":[{"name":"g","env":{"PASSWORD":%q},"nosuch":%q}]}`, secret, secret))
	for what, text := range map[string]string{"the error of the CLI": r.out + r.err,
		"the error of the API": string(a.body), "the events": fmt.Sprint(c.events(t))} {
		if strings.Contains(text, secret) {
			t.Errorf("%s tells the secret", what)
		}
	}
	c.must(t, "node", "drain", c.living(t, "vault")[0].Node)
	var metrics string
	c.mustGet(t, "/metrics", &metrics)
	if strings.Contains(metrics, secret) {
		t.Error("the metrics tell the secret")
	}
	for _, m := range c.members() {
		text, err := os.ReadFile(m.Log)
		if err != nil || strings.Contains(string(text), secret) {
			t.Errorf("the log of %s tells the secret (%v)", m.Name, err)
		}
	}
}
