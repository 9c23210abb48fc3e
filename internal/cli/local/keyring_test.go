package local

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/outspan/outspan/model"
)

// An export touches no other file: neither one beside it, nor one to which a link of its name leads. It is private.
func TestExportWritesOneFile(t *testing.T) {
	dir := t.TempDir()
	path, beside, target := filepath.Join(dir, "k"), filepath.Join(dir, "k.new"), filepath.Join(dir, "target")
	for _, one := range []string{beside, target} {
		if err := os.WriteFile(one, []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := writeNew(path, "secret"); err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != 0o600 || fileText(t, path) != "secret" {
		t.Errorf("the export is %v with %q, %v", info.Mode(), fileText(t, path), err)
	}
	if fileText(t, beside) != "mine" {
		t.Error("the file beside it was overwritten")
	}
	wantRefusal(t, writeNew(path, "again"), model.CodeFileExists, "exists already", "choose another file")
	for name, to := range map[string]string{"link": target, "dangling": filepath.Join(dir, "nothing")} {
		link := filepath.Join(dir, name)
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		wantRefusal(t, writeNew(link, "again"), model.CodeFileExists, "exists already", "choose another file")
	}
	if fileText(t, path) != "secret" || fileText(t, target) != "mine" || exists(filepath.Join(dir, "nothing")) {
		t.Error("a refused export wrote something")
	}
}
