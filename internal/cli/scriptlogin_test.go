package cli

import (
	"fmt"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/outspan/outspan/internal/testbed/idp"
)

// startProvider returns the script command that starts an OpenID Connect provider, which runs until the test ends. The
// provider knows two people: alice is in the group shop, and bob is in no group.
func startProvider(t *testing.T) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg || len(args) != 0 {
			ts.Fatalf("usage: provider")
		}
		p := idp.Start(t, idp.Options{})
		p.AddUser(idp.User{Sub: "alice", Email: "alice@example.org", Groups: []string{"shop"}})
		p.AddUser(idp.User{Sub: "bob", Email: "bob@example.org"})
		ts.Value(providerBox{}).(*providerOf).is = p
		ts.Setenv("ISSUER", p.Issuer())
		ts.Check(os.WriteFile(ts.MkAbs("idp-ca.pem"), p.CAPEM(), 0o600))
	}
}

// providerOf has the provider of a script, and providerBox is its key among the values of the script.
type providerOf struct{ is *idp.Provider }

type providerBox struct{}

// answerCode is the script command that waits for a code at the provider, and approves or denies it.
func answerCode(ts *testscript.TestScript, neg bool, args []string) {
	p := ts.Value(providerBox{}).(*providerOf).is
	if neg || len(args) != 1 || p == nil {
		ts.Fatalf("usage: approve SUB, or: approve no; after provider")
	}
	await(ts, "a code at the provider", func() error {
		codes := p.Waiting()
		switch {
		case len(codes) == 0:
			return fmt.Errorf("nobody signs in")
		case args[0] == "no":
			return p.Deny(codes[0])
		}
		return p.Approve(codes[0], args[0])
	})
}
