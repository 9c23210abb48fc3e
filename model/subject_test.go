package model

import "testing"

func TestParseSubject(t *testing.T) {
	for text, want := range map[string]Subject{
		"server:s1":   {SubjectServer, "s1"},
		"agent:n1":    {SubjectAgent, "n1"},
		"cert:alice":  {SubjectCert, "alice"},
		"uid:0@s1":    {SubjectUID, "0@s1"},
		"cert:a:b@ex": {SubjectCert, "a:b@ex"},
	} {
		got, ok := ParseSubject(text)
		if !ok || got != want || got.String() != text || got.Actor() != Actor(text) {
			t.Errorf("%s: %+v, %v", text, got, ok)
		}
	}
	for _, text := range []string{"", "cert", "cert:", ":alice", "cli:alice", "root:x", "Cert:alice"} {
		if got, ok := ParseSubject(text); ok {
			t.Errorf("%q is taken as %+v", text, got)
		}
	}
}
