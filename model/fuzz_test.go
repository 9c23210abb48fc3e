package model

import (
	"path"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzParseGate: if ParseGate accepts a gate, it reads the gate's printed text as the same gate.
func FuzzParseGate(f *testing.F) {
	for _, text := range []string{"!self.leader", "self.drained", "led_shards.in_sync_followers", "group.ready >= 2",
		"group.leader_responding", "group.followers_responding >= 1", "old.confirmed_stopped",
		"self.a.b", "group.ready >= 02"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		g, refusal := ParseGate(text)
		if refusal != nil {
			if refusal.Code != CodeInvalid || refusal.Hint == "" {
				t.Fatalf("%q is refused as %+v", text, refusal)
			}
			return
		}
		if again, refusal := ParseGate(g.String()); refusal != nil || again != g {
			t.Fatalf("%q is %+v, printed %s, read again as %+v (%v)", text, g, g, again, refusal)
		}
		_ = g.HoldsFor(map[string]string{g.Fact: "true"})
	})
}

// FuzzPathNames: a valid name of a job, group, volume or node is exactly one element of a path. A valid path of a
// volume is absolute and clean, and not inside a system directory or another volume.
func FuzzPathNames(f *testing.F) {
	for _, name := range []string{"web", "..", ".", "", "a/b", "a\x00", "a\\b", "A-1_2.3", "-a", "...", "/data", "/proc/1",
		"/a/../proc", "/dev/../data", "//x", "/a/", "/sysx", strings.Repeat("x", 64), "é", "/\u2028", "/a\nb"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if ValidName(name) {
			const root = "/root"
			whole := filepath.Join(root, name, "x")
			if !filepath.IsLocal(name) || filepath.Base(name) != name || path.Clean(name) != name ||
				filepath.Dir(filepath.Dir(whole)) != root || strings.ContainsAny(name, "/\\\x00\n \"'$`") {
				t.Errorf("the name %q makes the path %s", name, whole)
			}
		}
		g := GroupSpec{Name: "g", Count: 1, Exec: ExecSpec{Command: "/x"},
			Volumes: []VolumeSpec{{Name: "v", Kind: VolumeLocal, Path: name}, {Name: "w", Kind: VolumeLocal, Path: "/other"}}}
		if g.checkVolumes() != nil {
			return
		}
		if !filepath.IsAbs(name) || filepath.Clean(name) != name || strings.Contains(name, "\x00") || name == "/" {
			t.Errorf("the path %q was taken", name)
		}
		for _, barred := range []string{"/proc", "/sys", "/dev", "/other"} {
			if rel, err := filepath.Rel(barred, name); err != nil || rel == "." || filepath.IsLocal(rel) {
				t.Errorf("the path %q is within %s", name, barred)
			}
		}
	})
}

// FuzzParseSize: an accepted size is not negative, and twice the size does not overflow.
func FuzzParseSize(f *testing.F) {
	for _, text := range []string{"128MiB", "1.5GB", "0B", "9999999TiB", "-1B", "1e9B", "NaNB", ".B", "1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseSize(text)
		if err == nil && (n < 0 || 2*n < n) {
			t.Fatalf("%q is %d bytes", text, n)
		}
	})
}
