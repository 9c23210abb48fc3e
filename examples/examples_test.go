// Package examples contains complete, commented configuration and job files that a user can start from. Its tests load
// each file.
package examples

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/jobfile"
)

// files returns the paths of all .hcl files in this directory and its subdirectories.
func files(t *testing.T) []string {
	t.Helper()
	var all []string
	err := filepath.WalkDir(".", func(file string, _ fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(file) == ".hcl" {
			all = append(all, file)
		}
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("no examples found: %v", err)
	}
	return all
}

func TestExamplesLoad(t *testing.T) {
	for _, file := range files(t) {
		t.Run(file, func(t *testing.T) {
			src, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(src), "\njob \"") {
				_, err = jobfile.Parse(file, src)
			} else {
				_, err = config.Load(file)
			}
			if err != nil {
				t.Error(err)
			}
			formatted, err := hclfile.Format(file, src)
			if err != nil || string(formatted) != string(src) {
				t.Errorf("%s is not in canonical form (%v); run: outspan fmt %s", file, err, file)
			}
		})
	}
}

// TestScriptsAreThere checks that the scripts that a job file names are executable files in the job file's directory,
// and that the directory has no other files. A job file names a script by the path to which users copy it,
// /opt/<directory>/<script>.
func TestScriptsAreThere(t *testing.T) {
	dirs := 0
	for _, file := range files(t) {
		dir := filepath.Dir(file)
		if dir == "." {
			continue
		}
		dirs++
		src, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]bool{filepath.Base(file): true}
		script := regexp.MustCompile(`"/opt/` + regexp.QuoteMeta(dir) + `/([^"]+)"`)
		for _, match := range script.FindAllStringSubmatch(string(src), -1) {
			named[match[1]] = true
			info, err := os.Stat(filepath.Join(dir, match[1]))
			switch {
			case err != nil:
				t.Errorf("%s names a script that is not beside it: %v", file, err)
			case !info.Mode().IsRegular() || info.Mode().Perm()&0o111 != 0o111:
				t.Errorf("%s names %s, which not everybody can run: its mode is %s", file, match[1], info.Mode())
			}
		}
		beside, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range beside {
			if !named[one.Name()] {
				t.Errorf("%s lies in %s, and %s does not name it", one.Name(), dir, file)
			}
		}
		if len(named) == 1 {
			t.Errorf("%s names no script in /opt/%s", file, dir)
		}
	}
	if dirs == 0 {
		t.Error("no directory with an example and its scripts was found")
	}
}
