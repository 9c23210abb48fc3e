package main

import (
	"bufio"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// allowList is the set of skips that are allowed: tests in the form of testID.String, and packages with what the tests
// say that may skip, "pkg: said". A nil list allows every skip.
type allowList map[string]bool

// readAllowed reads the allow list from the named file. It returns a nil list if name is empty. A line of the file
// names one test, by the package's path, a slash and the test's name. Or it allows all skips of a package that give the
// same reason to t.Skip, by the package's path, a colon and that reason. Both end with "#" and why the skip is allowed.
// Blank lines and lines that begin with "#" are ignored. A line that does not say why is an error, because nobody could
// judge later whether the skip is still needed.
func readAllowed(name string) (allowList, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the list of allowed skips: %w", err)
	}
	defer f.Close()
	list := allowList{}
	scan := bufio.NewScanner(f)
	for n := 1; scan.Scan(); n++ {
		line := strings.TrimSpace(scan.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		id, reason, _ := strings.Cut(line, "#")
		id = strings.TrimSpace(id)
		if strings.TrimSpace(reason) == "" {
			return nil, fmt.Errorf("%s:%d: %s has no reason; write it after a #", name, n, id)
		}
		list[id] = true
	}
	return list, scan.Err()
}

// refuse returns the skips that l does not allow.
func (l allowList) refuse(skips []skip) []skip {
	if l == nil {
		return nil
	}
	var refused []skip
	for _, s := range skips {
		if !l.allows(s.id) && !l[s.id.pkg+": "+place.ReplaceAllString(s.reason, "")] {
			refused = append(refused, s)
		}
	}
	return refused
}

// place is the file and line that package testing puts before the reason of a skip.
var place = regexp.MustCompile(`^\w+\.go:\d+: `)

// allows reports whether the list names the test or one of its parent tests.
func (l allowList) allows(id testID) bool {
	name := id.test
	for {
		if l[testID{id.pkg, name}.String()] {
			return true
		}
		cut := strings.LastIndex(name, "/")
		if cut < 0 {
			return false
		}
		name = name[:cut]
	}
}
