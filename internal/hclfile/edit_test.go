package hclfile

import (
	"strings"
	"testing"
)

func TestReplaceKey(t *testing.T) {
	const src = "# a note\nname = \"s1\"\n\nserver {\n  bootstrap_expect = 1 # alone\n" +
		"  raft_multiplier = 2 # slow disk\n}\n\nagent {\n  bootstrap_expect = 1\n}\n"
	out, replaced, err := ReplaceKey("a.hcl", []byte(src), "server", "bootstrap_expect", "retry_join",
		[]string{"10.0.0.1:7642", "${x}\""})
	if err != nil || !replaced {
		t.Fatalf("replaced %v, %v", replaced, err)
	}
	const want = "# a note\nname = \"s1\"\n\nserver {\n  raft_multiplier = 2 # slow disk\n" +
		"  retry_join      = [\"10.0.0.1:7642\", \"$${x}\\\"\"]\n}\n\nagent {\n  bootstrap_expect = 1\n}\n"
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	if out, _, err = ReplaceKey("a.hcl", []byte(src), "server", "bootstrap_expect", "retry_join", nil); err != nil ||
		strings.Contains(string(out), "retry_join") {
		t.Errorf("without texts: %s, %v", out, err)
	}
	if out, replaced, err = ReplaceKey("a.hcl", []byte("server {}\n"), "server", "bootstrap_expect", "retry_join",
		[]string{"a"}); err != nil || replaced || string(out) != "server {}\n" {
		t.Errorf("without the key: %s, %v, %v", out, replaced, err)
	}
	if _, _, err = ReplaceKey("a.hcl", []byte("server {"), "server", "a", "b", nil); err == nil {
		t.Error("a file that can't be parsed is edited")
	}
}

func TestSetFlag(t *testing.T) {
	const src = "# a note\nname = \"s1\"\n\ntls {\n  ca_file = \"a\" # mine\n  key_file = \"b\"\n}\n" +
		"gossip { key_file = \"c\" }\n" +
		"gossip {\n  profile = \"lan\"\n  key_file = \"d\"\n}\nagent {}\n"
	unset := []Unset{{"tls", "ca_file"}, {"tls", "key_file"}, {"gossip", "key_file"}}
	out, removed, err := SetFlag("a.hcl", []byte(src), "tls", "managed", unset)
	if err != nil || len(removed) != 4 {
		t.Fatalf("removed %v, %v", removed, err)
	}
	const want = "# a note\nname = \"s1\"\n\ntls {\n  managed = true\n}\ngossip {\n  profile = \"lan\"\n}\nagent {}\n"
	if string(out) != want {
		t.Errorf("got\n%s\nwant\n%s", out, want)
	}
	const other = "agent {}\n"
	if out, removed, err = SetFlag("a.hcl", []byte(other), "tls", "managed", unset); err != nil || len(removed) != 0 ||
		string(out) != other {
		t.Errorf("without the keys: %s, %v, %v", out, removed, err)
	}
	if _, _, err = SetFlag("a.hcl", []byte("tls {"), "tls", "managed", unset); err == nil {
		t.Error("a file that can't be parsed is edited")
	}
}
