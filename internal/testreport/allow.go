package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// allowList is the set of tests that may skip, each in the form of testID.String. A nil list allows every skip.
type allowList map[string]bool

// readAllowed reads the allow list from the named file. It returns a nil list if name is empty. Each line of the file
// has the package's path, a slash, the test's name, "#" and the reason. Blank lines and lines that begin with "#" are
// ignored. A line without a reason is an error, because nobody could judge later whether the skip is still needed.
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
		if !l.allows(s.id) {
			refused = append(refused, s)
		}
	}
	return refused
}

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
