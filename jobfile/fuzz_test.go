package jobfile_test

import (
	"errors"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/jobfile"
	"github.com/outspan/outspan/model"
)

// placed matches the file's name in an error.
var placed = regexp.MustCompile(`f\.hcl`)

// refused checks that an error has a code and names the file.
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

// FuzzParse: Parse returns either a job or an error that names the file. After formatting, the file gives the same job.
// A job that passes its check fits into a log entry.
func FuzzParse(f *testing.F) {
	f.Add([]byte(webJob))
	f.Add([]byte("job \"a\" {\n  group \"b\" {\n    exec {\n      command = \"${port.x}\"\n    }\n  }\n}\n"))
	f.Add([]byte("job \"a\" {\n  group \"b\" {\n    count = 2\n    exec {\n" +
		"      command = \"/x\"\n    }\n    volume \"v\" {\n" +
		"      kind = \"local\"\n      path = \"/../proc\"\n    }\n    stop {\n      grace = \"1e9h\"\n    }\n  }\n}\n"))
	f.Fuzz(func(t *testing.T, src []byte) {
		spec, err := jobfile.Parse("f.hcl", src)
		if err != nil {
			refused(t, err)
			return
		}
		if spec.Name == "" {
			t.Fatal("a job without a name was accepted")
		}
		pretty, err := hclfile.Format("f.hcl", src)
		if err != nil {
			t.Fatalf("what was parsed can't be formatted: %v", err)
		}
		again, err := jobfile.Parse("f.hcl", pretty)
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
