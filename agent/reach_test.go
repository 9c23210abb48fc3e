package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// proves that a user who can't pass through a directory above the agent's data directory is refused, with the
// directory and the way out.
func TestUserCanReachTheDataDirectory(t *testing.T) {
	stranger := account{name: "stranger", uid: 54321, gid: 54321, other: true}
	top := t.TempDir()
	closed := filepath.Join(top, "closed")
	data := filepath.Join(closed, "data")
	if err := os.MkdirAll(data, 0o711); err != nil {
		t.Fatal(err)
	}
	above := reachable(top, stranger) // fails if the test itself runs below a directory that is closed to others
	for mode, passes := range map[os.FileMode]bool{0o700: false, 0o750: false, 0o711: true, 0o755: true} {
		if err := os.Chmod(closed, mode); err != nil {
			t.Fatal(err)
		}
		err := reachable(data, stranger)
		switch {
		case !passes && (err == nil || !strings.Contains(err.Error(), closed+" (mode 0")):
			t.Errorf("mode %o: %v", mode, err)
		case passes && above == nil && err != nil:
			t.Errorf("mode %o: %v", mode, err)
		}
		if err := reachable(data, account{uid: os.Getuid(), gid: os.Getgid()}); err != nil && above == nil {
			t.Errorf("mode %o: its owner is refused: %v", mode, err)
		}
	}
	if err := reachable(data, account{}); err != nil {
		t.Errorf("root is refused: %v", err)
	}
}
