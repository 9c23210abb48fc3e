package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// A snapshot is refused if the files of the server have a CA that it lacks. Files that lack a CA of the snapshot, and
// missing files, are no obstacle.
func TestRecoverWithTheSameCA(t *testing.T) {
	var cas [][]byte
	for range 3 {
		ca, err := transport.NewAuthority("c1", 0)
		if err != nil {
			t.Fatal(err)
		}
		cas = append(cas, ca.Root().Raw)
	}
	saved := func(keys ...fsm.Command) *fsm.State {
		t.Helper()
		data, err := fsm.EncodeEntry(fsm.Entry{Format: model.CurrentFormat, At: 1, Groups: [][]fsm.Command{keys}})
		if err != nil {
			t.Fatal(err)
		}
		machine := fsm.NewMachine()
		if results, err := machine.Apply(1, 1, data); err != nil || results[0].Refusal != nil {
			t.Fatal(results, err)
		}
		return machine.Current()
	}
	key := func(name model.KeyName, phase model.KeyPhase, public []byte) fsm.Command {
		return &fsm.KeyPut{Name: name, Version: 1, Phase: phase, Under: "data/1", Sealed: []byte("x"), Public: public}
	}
	data := &fsm.KeyPut{Name: "data/1", Version: 1, Phase: model.KeyActive, Under: "kek", Sealed: []byte("x")}
	one := saved(data, key("ca/1", model.KeyActive, cas[0]))
	two := saved(data, key("ca/1", model.KeyActive, cas[0]), key("ca/2", model.KeyIncoming, cas[1]))
	for name, test := range map[string]struct {
		state *fsm.State
		files [][]byte
		want  bool
	}{
		"no files":                         {one, nil, true},
		"the same":                         {one, cas[:1], true},
		"saved before the rotation":        {one, cas[1:2], false},
		"saved shortly before it":          {one, cas[:2], false},
		"saved during the rotation":        {two, cas[1:2], true},
		"saved two rotations ago":          {two, cas[1:], false},
		"files from before the rotation":   {two, cas[:1], true},
		"the cluster has no CA of its own": {&fsm.State{}, cas, true},
	} {
		dir := t.TempDir()
		if test.files != nil {
			if err := transport.ManagedDir(dir).Write(transport.ManagedFiles{Roots: test.files}); err != nil {
				t.Fatal(err)
			}
		}
		err := sameCA(test.state, dir)
		if test.want && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if !test.want {
			wantRefusal(t, err, model.CodeConflict, "has a CA that the snapshot lacks", "remove "+filepath.Join(dir, "tls"))
		}
	}
	damaged := t.TempDir()
	if err := os.MkdirAll(filepath.Join(damaged, "tls"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(damaged, "tls", "ca.pem"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, sameCA(one, damaged), model.CodeCertificateInvalid, "can't be used", "")
}
