package transport

import (
	"errors"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

func TestBodies(t *testing.T) {
	b := NewBodies(100, 250)
	agent := func(name string) pki.Identity { return pki.Identity{Role: pki.RoleAgent, Name: name} }
	busy := &model.Error{Code: model.CodeBusy}
	for _, step := range []struct {
		who  pki.Identity
		n    int64 // bytes to take, or if negative, bytes to give back
		want error
	}{
		{agent("a"), 60, nil},
		{agent("a"), 60, busy}, // over the limit of one caller
		{agent("b"), 100, nil},
		{agent("c"), 100, busy}, // over the limit of all callers
		{agent("a"), -60, nil},
		{agent("c"), 100, nil},
		{pki.Identity{Role: pki.RoleServer, Name: "s1"}, 50, nil},
		{pki.Identity{Role: pki.RoleServer, Name: "s1"}, 1, busy},
		{agent("c"), -100, nil},
		{pki.Identity{Role: pki.RoleServer, Name: "s1"}, 100, nil}, // a server is subject only to the limit of all callers
	} {
		if step.n < 0 {
			b.Give(step.who, -step.n)
			continue
		}
		if err := b.Take(step.who, step.n); !errors.Is(err, step.want) {
			t.Errorf("%s takes %d: %v, want %v", step.who, step.n, err, step.want)
		}
	}
	b.Give(agent("b"), 100)
	b.Give(pki.Identity{Role: pki.RoleServer, Name: "s1"}, 150)
	if b.held != 0 || len(b.of) != 0 {
		t.Errorf("all was given back, and %d bytes of %d callers are held", b.held, len(b.of))
	}
}
