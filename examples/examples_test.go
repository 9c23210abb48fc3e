// Package examples holds complete, commented files that a user can start from; each is loaded by a test.
package examples

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outspan/outspan/config"
)

func TestExamplesLoad(t *testing.T) {
	files, err := filepath.Glob("*.hcl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no examples found: %v", err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(src), "\njob \"") {
				_, err = config.ParseJob(file, src)
			} else {
				_, err = config.Load(file)
			}
			if err != nil {
				t.Error(err)
			}
			formatted, err := config.Format(file, src)
			if err != nil || string(formatted) != string(src) {
				t.Errorf("%s is not in canonical form (%v); run: outspan fmt %s", file, err, file)
			}
		})
	}
}
