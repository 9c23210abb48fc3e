package local

import (
	"testing"

	"github.com/outspan/outspan/pki"
)

// A token may be revoked by its secret text, when nothing else of it is known.
func TestTokenID(t *testing.T) {
	token := newGate(t).token(t, pki.RoleAgent)
	if got := TokenID(token.Reveal()); got != token.ID() {
		t.Errorf("the id of the token's text is %q, want %s", got, token.ID())
	}
	if got := TokenID(token.ID()); got != token.ID() {
		t.Errorf("the id %s became %q", token.ID(), got)
	}
}
