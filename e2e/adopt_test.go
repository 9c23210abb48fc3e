package e2e

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// A cluster with certificate files becomes a managed one, machine by machine. No write fails, and no instance notices.
// Then an agent can be revoked, and a machine joins with a token.
func TestAdopt(t *testing.T) {
	long(t)
	t.Parallel()
	c := startCluster(t, options{servers: 3, agents: 2})
	c.run(t, job{name: "web", count: 2})
	running, instances, events := identities(c.instances()), c.living(t, "web"), len(c.events(t))
	stop := c.labelAllTheTime(t)
	for i, m := range c.members() {
		args := []string{"ca", "adopt", "--config", m.config()}
		if i == 1 { // not the first, so the leader must ask another server
			args = append(args, "--ca-key", c.path("tls", "ca-key.pem"))
		}
		c.must(t, args...)
		m.terminate(t)
		m.start(t)
		c.waitVotersWithin(t, 3, patience)
		c.waitEligible(t, c.agents...)
		if i == 2 {
			waitFor(t, "the state has a CA", 2*time.Minute, func() error {
				var ca api.CA
				if err := c.get("/v1/ca", &ca); err != nil || len(ca.CAs) != 1 {
					return fmt.Errorf("%d CAs: %w", len(ca.CAs), errors.Join(err))
				}
				return nil
			})
		}
	}
	for _, s := range c.servers {
		file := transport.ManagedDir(s.data()).CAKeyFile()
		waitFor(t, file+" is removed", patience, func() error {
			_, err := os.Stat(file)
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return nil
			case err == nil:
				return errors.New("it is there")
			}
			return err
		})
	}
	t.Logf("%d writes", stop())
	if now := identities(c.instances()); !maps.Equal(running, now) {
		t.Errorf("before %v, now %v", running, now)
	}
	c.checkUndisturbed(t, "web", instances, events)

	c.options.managed = true // the next machine is set up by outspan join
	revoked := c.agents[1]
	c.must(t, "node", "revoke", revoked.Name, "--yes")
	waitFor(t, revoked.Name+" is offline", patience, func() error {
		if n := c.node(t, revoked); n.Health == "online" {
			return fmt.Errorf("it is %s", n.Health)
		}
		return nil
	})
	added := c.newMember("agent", "n3", strings.TrimSuffix(c.agents[0].address, "101")+"103")
	c.agents = append(c.agents, added)
	token := tokenText.FindString(c.must(t, "token", "create", "--role", "agent"))
	if err := added.join(token); err != nil {
		t.Fatal(err)
	}
	added.configure(t, added.settings())
	added.start(t)
	c.waitEligible(t, added)
}

// labelAllTheTime has a person's client set a label again and again until stop is called. The client repeats what was
// not answered, as every command does. stop returns how many writes were made.
func (c *cluster) labelAllTheTime(t *testing.T) (stop func() int) {
	t.Helper()
	var addresses []string
	for _, s := range c.servers {
		addresses = append(addresses, "https://"+s.api())
	}
	load, err := client.LoadTLS(client.Files{CA: c.path("tls", "ca.pem"), Cert: c.path("tls", "cli-me.pem"),
		Key: c.path("tls", "cli-me-key.pem")})
	if err != nil {
		t.Fatal(err)
	}
	caller, err := client.New(client.Config{Addresses: addresses, TLS: load, RetryFor: patience})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var writes int
	var wg sync.WaitGroup
	wg.Go(func() {
		defer caller.Close()
		for ; ctx.Err() == nil; writes++ {
			_, err := caller.Nodes.Label(t.Context(), c.agents[0].Name,
				api.LabelBody{Labels: map[string]string{"mark": strconv.Itoa(writes)}},
				client.WriteOptions{RequestID: model.RequestID(fmt.Sprintf("adopt-%d", writes))})
			if err != nil {
				t.Errorf("write %d: %v", writes, err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	return func() int {
		cancel()
		wg.Wait()
		return writes
	}
}
