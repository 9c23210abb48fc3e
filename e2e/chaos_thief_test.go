package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A revoked member can do nothing after revokedWithin, while the servers reach each other.
const revokedWithin = 10 * time.Second

// thief is somebody with a copy of the certificate and the key of an agent.
type thief struct {
	name  string // of the agent
	creds *transport.Credentials
}

// steal copies the certificate and the key of an agent.
func (x *chaos) steal(name, tls string) *thief {
	x.t.Helper()
	th := &thief{name: name}
	waitFor(x.t, "a copy of the certificate of "+name, 10*time.Second, func() (err error) {
		x.trust.copies++
		dir := x.c.path(fmt.Sprintf("stolen%d", x.trust.copies))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if out, err := output(exec.Command("cp", "-a", tls, dir), 10*time.Second); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		th.creds, err = transport.ManagedDir(dir).Credentials(transport.DefaultCluster, pki.RoleAgent, name)
		return err // the files may have been replaced while they were copied
	})
	return th
}

// tries returns what a server still answers to a thief. An answer of any kind shows that the server let the thief in.
func (x *chaos) tries(th *thief, at *member) (can []string) {
	x.t.Helper()
	client, err := transport.NewClient(transport.ClientConfig{Addresses: []string{"https://" + at.api()},
		Credentials: th.creds, RetryFor: -1, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialIn(ctx, x.guest, network, addr)
		}})
	if err != nil {
		x.t.Fatal(err)
	}
	defer client.Close()
	for _, one := range []struct {
		what string
		call func(context.Context) error
	}{
		{"the API", func(ctx context.Context) error {
			_, _, err := client.Do(ctx, http.MethodGet, "/v1/status", nil, nil)
			return err
		}},
		{"assignments", func(ctx context.Context) error {
			_, err := client.Assignments(ctx, transport.AssignmentsRequest{Epoch: 1})
			return err
		}},
		{"a registration", func(ctx context.Context) error {
			_, err := client.Register(ctx, transport.RegisterRequest{Name: th.name})
			return err
		}},
		{"a renewal", func(ctx context.Context) error {
			_, err := client.Renew(ctx, transport.RenewRequest{Request: []byte{1}})
			return err
		}},
	} {
		ctx, cancel := context.WithTimeout(x.t.Context(), 4*time.Second)
		err := one.call(ctx)
		cancel()
		if _, answered := errors.AsType[*api.Problem](err); err == nil || answered {
			can = append(can, one.what+" of "+at.Name)
		}
	}
	return can
}

// triesAll returns what the servers that run still answer to a thief.
func (x *chaos) triesAll(th *thief) (can []string) {
	for _, s := range x.c.servers {
		if s.Running() {
			can = append(can, x.tries(th, s)...)
		}
	}
	x.book.count("rounds with a stolen certificate", 1)
	return can
}

// judgeThieves checks that no server lets any thief in. It forgets thieves whose certificate has expired.
func (x *chaos) judgeThieves(when string) {
	x.trust.thieves = slices.DeleteFunc(x.trust.thieves, func(th *thief) bool {
		return time.Now().After(th.creds.NotAfter())
	})
	for _, th := range x.trust.thieves {
		if can := x.triesAll(th); len(can) > 0 {
			x.book.violate("S19: %s, a copied certificate of the agent %s, which was revoked, gets %v", when, th.name, can)
		}
	}
}

// lockOut checks that no server lets a thief in from revokedWithin after the revocation on. From now on, judgeThieves
// tries the thief too.
func (x *chaos) lockOut(th *thief, revoked time.Time) {
	for can := x.triesAll(th); len(can) > 0; can = x.triesAll(th) {
		if took := time.Since(revoked); took > revokedWithin {
			x.book.violate("S19: %s after the revocation of %s, a copy of its certificate gets %v", took, th.name, can)
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	x.book.longest("time until a stolen certificate is refused", time.Since(revoked))
	x.trust.thieves = append(x.trust.thieves, th)
}
