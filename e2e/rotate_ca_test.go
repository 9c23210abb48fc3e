package e2e

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// The CA is replaced twice: first the leader is killed meanwhile, then nothing is. Each machine ends with the new CA
// alone and a certificate of it. No instance notices, and no call of a client fails.
func TestRotateCA(t *testing.T) {
	long(t)
	c := newMembers(t, options{servers: 3, agents: 2, managed: true})
	c.found(t)
	c.waitEligible(t, c.agents...)
	c.waitVotersWithin(t, 3, patience)
	c.run(t, job{name: "web", count: 2})
	running, instances, events := identities(c.instances()), c.living(t, "web"), len(c.events(t))
	n1 := c.agents[0]
	copied, err := transport.ManagedDir(n1.data()).Credentials(transport.DefaultCluster, pki.RoleAgent, n1.Name)
	if err != nil {
		t.Fatal(err)
	}
	if err := callWith(t, copied, c.servers[0]); err != nil {
		t.Fatal(err)
	}

	for _, kill := range []bool{true, false} {
		old, began := c.root(t, c.servers[0]), time.Now()
		stop := c.callAllTheTime(t)
		c.must(t, "ca", "rotate")
		if kill {
			leader := c.leader(t)
			leader.Kill()
			leader.start(t)
		}
		c.waitCARotated(t)
		pairs, failed, longest := stop()
		t.Logf("rotated in %s: %d writes and reads, %d attempts failed, the longest took %s",
			time.Since(began).Round(time.Second), pairs, len(failed), longest.Round(time.Millisecond))
		if !kill && len(failed) > 0 {
			t.Errorf("a rotation without a kill failed requests: %v", errors.Join(failed...))
		}
		c.judgeCertificates(t, old)
	}
	if err := copied.UseRoots([][]byte{c.root(t, c.servers[0]).Raw}); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.servers {
		if err := callWith(t, copied, s); err == nil {
			t.Errorf("%s answers to a certificate of the old CA", s.Name)
		}
	}
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("before %v, now %v", running, now)
	}
	c.checkUndisturbed(t, "web", instances, events)
}

// callAllTheTime has a client for each server that writes and reads until stop is called. A client asks its server
// only, because on the socket of another one it would be another caller. It repeats what was not answered. stop returns
// how many pairs of a write and a read were made, why attempts failed, and how long the longest pair took.
func (c *cluster) callAllTheTime(t *testing.T) (stop func() (pairs int, failed []error, longest time.Duration)) {
	t.Helper()
	var (
		mu      sync.Mutex
		pairs   int
		failed  []error
		longest time.Duration
		calling sync.WaitGroup
	)
	ctx, cancel := context.WithCancel(t.Context())
	for i, s := range c.servers {
		caller, err := client.New(client.Config{Addresses: []string{"unix://" + s.socket()}, RetryFor: -1})
		if err != nil {
			t.Fatal(err)
		}
		label := fmt.Sprintf("mark%d", i)
		calling.Go(func() {
			defer caller.Close()
			for n := 0; ctx.Err() == nil; n++ {
				began := time.Now()
				var refused []error
				id := model.RequestID(fmt.Sprintf("%s-%d-%d", s.Name, began.UnixNano(), n))
				err := within(patience, func() error {
					err := writeAndRead(t.Context(), caller, id, c.agents[0].Name, label, strconv.Itoa(n))
					if err != nil {
						refused = append(refused, fmt.Errorf("by %s, pair %d: %w", s.Name, n, err))
					}
					return err
				})
				if err != nil {
					t.Errorf("by %s, pair %d: %v", s.Name, n, err)
				}
				mu.Lock()
				pairs, failed, longest = pairs+1, append(failed, refused...), max(longest, time.Since(began))
				mu.Unlock()
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	return func() (int, []error, time.Duration) {
		cancel()
		calling.Wait()
		return pairs, failed, longest
	}
}

// writeAndRead sets a label of a node, and reads it.
func writeAndRead(ctx context.Context, caller *client.Client, id model.RequestID, node, label, value string) error {
	if _, err := caller.Nodes.Label(ctx, node, api.LabelBody{Labels: map[string]string{label: value}},
		client.WriteOptions{RequestID: id}); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	got, err := caller.Nodes.Get(ctx, node, client.ReadOptions{})
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if got.Value.Labels[label] != value {
		return fmt.Errorf("the label %s is %q, want %q", label, got.Value.Labels[label], value)
	}
	return nil
}

// waitCARotated waits until the cluster has one CA that all members use.
func (c *cluster) waitCARotated(t *testing.T) {
	t.Helper()
	waitFor(t, "the end of the rotation", 4*time.Minute, func() error {
		var ca api.CA
		if err := c.get("/v1/ca", &ca); err != nil {
			return err
		}
		if ca.Rotation != nil || len(ca.CAs) != 1 {
			return fmt.Errorf("%d CAs, %+v", len(ca.CAs), ca.Rotation)
		}
		return nil
	})
}

// root returns the only CA in the files of a member.
func (c *cluster) root(t *testing.T, m *member) *x509.Certificate {
	t.Helper()
	roots, err := transport.ManagedDir(m.data()).Roots()
	if err != nil || len(roots) != 1 {
		t.Fatalf("%s has %d CAs in its files (%v)", m.Name, len(roots), err)
	}
	return roots[0]
}

// judgeCertificates asserts that each member has the same CA, which is not old, and a certificate of it.
func (c *cluster) judgeCertificates(t *testing.T, old *x509.Certificate) {
	t.Helper()
	now := c.root(t, c.servers[0])
	if now.Equal(old) {
		t.Error("the CA is the old one")
	}
	pool := x509.NewCertPool()
	pool.AddCert(now)
	for _, m := range c.members() {
		if !c.root(t, m).Equal(now) {
			t.Errorf("%s has another CA than %s", m.Name, c.servers[0].Name)
		}
		pair, found, err := transport.ManagedDir(m.data()).Pair(pki.Role(m.role))
		if err != nil || !found {
			t.Errorf("%s has no certificate (%v)", m.Name, err)
			continue
		}
		if _, err := pair.Leaf.Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{
			x509.ExtKeyUsageAny}}); err != nil {
			t.Errorf("the certificate of %s: %v", m.Name, err)
		}
	}
}

// callWith calls a server with the certificate in creds. It returns nil if the server answers, even with a refusal.
func callWith(t *testing.T, creds *transport.Credentials, at *member) error {
	t.Helper()
	caller, err := transport.NewClient(transport.ClientConfig{Addresses: []string{"https://" + at.api()},
		Credentials: creds, RetryFor: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer caller.Close()
	_, _, err = caller.Do(t.Context(), http.MethodGet, "/v1/status", nil, nil)
	if _, answered := errors.AsType[*api.Problem](err); answered {
		return nil
	}
	return err
}
