package jobfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// jobWith returns the smallest job file that contains the given line in the block to which the key with this path
// belongs. It adds what a valid file needs: k.Beside in the same block, and k.With in the group.
func jobWith(path, line string, k hclfile.KeyText) string {
	parts := strings.Split(path, ".")
	text := line + "\n" + k.Beside + "\n"
	for _, name := range slices.Backward(parts[2:max(len(parts)-1, 2)]) {
		labels := map[string]string{"port": "http", "service": "web", "check": "a", "volume": "data", "hook": "before_stop",
			"mount": "/etc/app"}
		label := labels[name]
		if label != "" {
			label = fmt.Sprintf(" %q", label)
		}
		text = name + label + " {\n" + text + "}\n"
	}
	class := ""
	if len(parts) == 2 {
		class, text = text, ""
	}
	if strings.Contains(path, ".mount.") {
		text = strings.Replace(text, "container {\n", "container {\nimage = \"web\"\n", 1)
	}
	if !strings.Contains(path, ".exec.") && !strings.Contains(path+k.With, "container") ||
		strings.Contains(path, "check") || strings.Contains(path, "hook") {
		text += "exec {\ncommand = \"/bin/true\"\n}\n"
	}
	return "job \"x\" {\n" + class + "group \"g\" {\n" + text + k.With + "\n}\n}\n"
}

func parsed(t *testing.T, path, text string) model.JobSpec {
	t.Helper()
	spec, err := Parse("x.hcl", []byte(text))
	if err != nil {
		t.Fatalf("%s: %v\n%s", path, err, text)
	}
	return spec.Expand()
}

// The reference explains every key that the decoder accepts, and no other key. Its examples are accepted, and the
// defaults that it states are correct.
func TestJobReference(t *testing.T) {
	texts := allTexts()
	for _, key := range allKeys() {
		if key.Type == "block" {
			continue
		}
		k, ok := texts[key.Path]
		delete(texts, key.Path)
		if !ok || k.Means == "" || k.Example == "" || key.Type == "" {
			t.Errorf("%s (%s) is not explained: %+v", key.Path, key.Type, k)
			continue
		}
		name := key.Path[strings.LastIndexByte(key.Path, '.')+1:]
		with := parsed(t, key.Path, jobWith(key.Path, name+" = "+k.Example, k))
		if key.Required || k.Default == "" {
			continue
		}
		without := parsed(t, key.Path, jobWith(key.Path, "", k))
		if diff := cmp.Diff(without, parsed(t, key.Path, jobWith(key.Path, name+" = "+k.Default, k))); diff != "" {
			t.Errorf("%s: %s is not the default: %s", key.Path, k.Default, diff)
		}
		if cmp.Equal(without, with) {
			t.Errorf("%s: the example %s is the default", key.Path, k.Example)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(texts)) {
		t.Errorf("%s is explained, and no key", path)
	}
}
