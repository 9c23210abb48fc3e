package pki_test

import (
	"bytes"
	"testing"

	"github.com/outspan/outspan/pki"
)

func TestDigests(t *testing.T) {
	a, b, c := []byte("a"), []byte("b"), []byte("c")
	same := bytes.Equal
	list := func(keys ...[]byte) [][]byte { return keys }
	if !same(pki.RootsDigest(list(a, b)), pki.RootsDigest(list(b, a))) {
		t.Error("the order of roots matters")
	}
	if same(pki.RootsDigest(list(a, b)), pki.RootsDigest(list([]byte("ab")))) {
		t.Error("two roots are the same as one that is as long")
	}
	if !same(pki.GossipDigest(list(a, b, c)), pki.GossipDigest(list(a, c, b))) {
		t.Error("the order of the keys that only decrypt matters")
	}
	if same(pki.GossipDigest(list(a, b)), pki.GossipDigest(list(b, a))) {
		t.Error("the key that encrypts does not matter")
	}
	keys := list(c, b, a)
	pki.GossipDigest(keys)
	if !same(keys[1], b) {
		t.Error("the list of the caller was sorted")
	}
}
