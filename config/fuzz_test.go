package config_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// placed is how an error names where it is.
var placed = regexp.MustCompile(`f\.hcl`)

// refused holds that an error has a code and names the file.
func refused(t *testing.T, err error) {
	t.Helper()
	known, ok := errors.AsType[*model.Error](err)
	if !ok || known.Code == "" {
		t.Fatalf("the error has no code: %v", err)
	}
	if !placed.MatchString(known.Message) {
		t.Fatalf("the error does not say where: %v", err)
	}
}

// FuzzLoad: a configuration is refused, or has what a process needs.
func FuzzLoad(f *testing.F) {
	f.Add([]byte(serverFile))
	f.Add([]byte("name = \"a\"\ndata_dir = \"/d\"\nserver { bootstrap_expect = 1 }\ntls { dir = \"/t\" }\n"))
	f.Add([]byte("name = \"a\"\ndata_dir = \"/d\"\nagent { servers = [\"s:1\"] }\ntls { dir = \"/t\" }\nlog { level = \"warn\" }\n"))
	f.Add([]byte("agent { labels = { a = \"b\" } }"))
	f.Fuzz(func(t *testing.T, src []byte) {
		file := filepath.Join(t.TempDir(), "f.hcl")
		if err := os.WriteFile(file, src, 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(file)
		if err != nil {
			if known, ok := errors.AsType[*model.Error](err); !ok || known.Code == "" || known.Message == "" {
				t.Fatalf("the error has no code: %v", err)
			}
			return
		}
		if c.Name == "" || !filepath.IsAbs(c.DataDir) || c.Server == nil && c.Agent == nil {
			t.Fatalf("accepted without a name, an absolute data_dir or a role: %+v", c)
		}
	})
}

// FuzzParseJob: a job file is refused with its place, or gives a job that its canonical form gives too, and that fits
// into an entry or is refused by its check.
func FuzzParseJob(f *testing.F) {
	f.Add([]byte(webJob))
	f.Add([]byte("job \"a\" {\n  group \"b\" {\n    exec {\n      command = \"${port.x}\"\n    }\n  }\n}\n"))
	f.Add([]byte("job \"a\" {\n  group \"b\" {\n    count = 2\n    exec {\n      command = \"/x\"\n    }\n    volume \"v\" {\n      kind = \"local\"\n      path = \"/../proc\"\n    }\n    stop {\n      grace = \"1e9h\"\n    }\n  }\n}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		spec, err := config.ParseJob("f.hcl", src)
		if err != nil {
			refused(t, err)
			return
		}
		if spec.Name == "" {
			t.Fatal("a job without a name was accepted")
		}
		pretty, err := config.Format("f.hcl", src)
		if err != nil {
			t.Fatalf("what was parsed can't be formatted: %v", err)
		}
		again, err := config.ParseJob("f.hcl", pretty)
		if err != nil {
			t.Fatalf("its canonical form can't be parsed: %v\n%s", err, pretty)
		}
		if diff := cmp.Diff(spec, again, cmpopts.EquateEmpty()); diff != "" {
			t.Fatalf("its canonical form is another job:\n%s", diff)
		}
		entry := fsm.Entry{Format: model.CurrentFormat, Groups: [][]fsm.Command{{&fsm.JobSubmit{Spec: spec}}}}
		if _, err := fsm.EncodeEntry(entry); err != nil && spec.Check() == nil {
			t.Fatalf("a job that its check takes fits into no entry: %v", err)
		}
	})
}

// FuzzParseSize: a size is refused, or a number of bytes that no sum of a few can make negative.
func FuzzParseSize(f *testing.F) {
	for _, text := range []string{"128MiB", "1.5GB", "0B", "9999999TiB", "-1B", "1e9B", "NaNB", ".B", "1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := config.ParseSize(text)
		if err == nil && (n < 0 || 2*n < n) {
			t.Fatalf("%q is %d bytes", text, n)
		}
	})
}
