package model

import (
	"testing"
)

func TestNamesOfTrust(t *testing.T) {
	for name, want := range map[KeyName]bool{"ca/1": true, "data/18446744073709551615": true, "gossip/10": true,
		"ca/0": false, "ca/01": false, "ca/+1": false, "ca": false, "ca/": false, "ssh/1": false, "": false,
		"ca/1/2": false, "ca/18446744073709551616": false} {
		if _, _, ok := name.Split(); ok != want {
			t.Errorf("%q is a name: %v", name, ok)
		}
	}
	for id, want := range map[TokenID]bool{"abcdefghijkl": true, "0123456789az": true, "abcdefghijk": false,
		"abcdefghijklm": false, "abcdefghijkL": false, "abcdefghijk-": false, "abcdefghijé": false, "": false} {
		if id.Valid() != want {
			t.Errorf("%q is an id: %v", id, id.Valid())
		}
	}
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"", "n1", true}, {"n?", "n1", true}, {"web-*", "web-12", true}, {"n[1-3]", "n4", false}, {"n", "n1", false},
		{"[", "[", false},
	} {
		if got := MatchGlob(tt.pattern, tt.name); got != tt.want {
			t.Errorf("%q matches %q: %v", tt.pattern, tt.name, got)
		}
	}
}
