package jobfile

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
)

// A brief file of an expanded job comes to the same job, and does not say what was left out before.
func TestPrintBrief(t *testing.T) {
	files, err := filepath.Glob("../examples/*.hcl")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	jobs := 0
	for _, file := range files {
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		spec, err := Parse(file, src)
		if err != nil {
			continue // a file of a server or an agent
		}
		jobs++
		text, err := PrintBrief(spec.Expand())
		if err != nil {
			t.Fatal(err)
		}
		back, err := Parse(file, []byte(text))
		if err != nil {
			t.Fatalf("%s: %v\n%s", file, err, text)
		}
		if got, want := encoded(t, back.Expand()), encoded(t, spec.Expand()); got != want {
			t.Errorf("%s became\n%s\nwant\n%s", file, got, want)
		}
		full, err := Print(spec.Expand())
		if err != nil || len(text)*4 > len(full)*3 {
			t.Errorf("%s: %d bytes of %d (%v):\n%s", file, len(text), len(full), err, text)
		}
	}
	if jobs < 3 {
		t.Errorf("only %d examples are jobs", jobs)
	}
}

// What Expand would not fill in stays, and a count of 0.
func TestPrintBriefKeeps(t *testing.T) {
	spec, err := Parse("x", []byte(`job "x" {
  group "g" {
    count = 0
    exec {
      command = "/bin/true"
    }
    restart {
      delay = "9s"
    }
    update {
      max_surge       = 0
      max_unavailable = 1
    }
    exclusive {}
  }
}
`))
	if err != nil {
		t.Fatal(err)
	}
	text, err := PrintBrief(spec)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"count = 0", "exclusive {}", `delay = "9s"`, "max_unavailable = 1"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("%s is gone:\n%s", want, text)
		}
	}
	if strings.Contains(text, "SIGTERM") || strings.Contains(text, "toleration") {
		t.Errorf("it states defaults:\n%s", text)
	}
}

func encoded(t *testing.T, spec model.JobSpec) string {
	t.Helper()
	text, err := json.MarshalIndent(spec, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
