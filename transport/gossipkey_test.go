package transport_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

func TestGossipKeyFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "gossip.key")
	_, err := transport.LoadGossipKeys(path)
	wantCode(t, err, model.CodeGossipKeyInvalid, path, "outspan gossip key create")
	key := must(transport.CreateGossipKey(path, false))(t)
	if len(key) != 32 {
		t.Errorf("the key has %d bytes, want 32", len(key))
	}
	if got := must(os.Stat(path))(t).Mode().Perm(); got != 0o600 {
		t.Errorf("mode %04o, want 0600", got)
	}
	if got := must(transport.LoadGossipKeys(path))(t); len(got) != 1 || string(got[0]) != string(key) {
		t.Error("another key was read than written")
	}
	_, err = transport.CreateGossipKey(path, false)
	wantCode(t, err, model.CodeFileExists, path)
	if again := must(transport.CreateGossipKey(path, true))(t); string(again) == string(key) {
		t.Error("force made the same key again")
	}
	for _, s := range []string{fmt.Sprint(key), fmt.Sprintf("%v %+v %#v %s", key, key, key, key)} {
		if s != "[gossip key]" && s != "[gossip key] [gossip key] [gossip key] [gossip key]" {
			t.Errorf("printing shows %s", s)
		}
	}
}

func TestParseGossipKey(t *testing.T) {
	for _, n := range []int{16, 24, 32} {
		k := make(transport.GossipKey, n)
		if got, err := transport.ParseGossipKey(" " + k.Encode() + "\r\n"); err != nil || len(got) != n {
			t.Errorf("%d bytes: got %d, %v", n, len(got), err)
		}
	}
	for _, s := range []string{"", "short", "c2hvcnQ=", make(transport.GossipKey, 31).Encode(),
		make(transport.GossipKey, 33).Encode(), "secret material!"} {
		_, err := transport.ParseGossipKey(s)
		wantCode(t, err, model.CodeGossipKeyInvalid)
		if s != "" && len(s) > 6 && strings.Contains(err.Error(), s) {
			t.Errorf("the error repeats the input: %v", err)
		}
	}
}

// A key file may have several keys, one on each line. Their order stays.
func TestGossipKeyFileWithSeveralKeys(t *testing.T) {
	m := transport.ManagedDir(t.TempDir())
	keys := [][]byte{transport.NewGossipKey(), transport.NewGossipKey(), make([]byte, 16)}
	if err := m.Write(transport.ManagedFiles{GossipKeys: keys}); err != nil {
		t.Fatal(err)
	}
	got := must(m.GossipKeys())(t)
	if len(got) != len(keys) {
		t.Fatalf("%d keys were read, want %d", len(got), len(keys))
	}
	for i := range keys {
		if string(got[i]) != string(keys[i]) {
			t.Errorf("key %d was read as another one", i)
		}
	}
	path := filepath.Join(m.Path(), "gossip.key")
	for what, text := range map[string]string{
		"a damaged second line": got[0].Encode() + "\nsecret material!\n",
		"no line":               "\n",
		"too many":              strings.Repeat(got[0].Encode()+"\n", 17),
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := m.GossipKeys()
		wantCode(t, err, model.CodeGossipKeyInvalid)
		if strings.Contains(err.Error(), "secret material") {
			t.Errorf("%s: the error repeats the input: %v", what, err)
		}
	}
}
