package main

import (
	"fmt"
	"strings"
)

// known are the changes that change nothing, by the key of a mutant; the value is the reason.
type known map[string]string

// readEquivalents reads equivalents.txt: paragraphs of a package, a function, a change and the source text of what is
// changed, one on a line, then lines of the reason, each with a "#" in front of it.
func readEquivalents(text string) (known, error) {
	all := known{}
	for paragraph := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		var fields, reason []string
		for line := range strings.Lines(paragraph) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "#") {
				reason = append(reason, strings.TrimSpace(line[1:]))
			} else {
				fields = append(fields, line)
			}
		}
		switch {
		case len(fields) == 0: // about the file
		case len(fields) != 4 || len(reason) == 0:
			return nil, fmt.Errorf("equivalents.txt: four lines and a reason are wanted, not %q", paragraph)
		default:
			key := strings.Join(fields, "\t")
			if _, twice := all[key]; twice {
				return nil, fmt.Errorf("equivalents.txt: twice: %q", paragraph)
			}
			all[key] = strings.Join(reason, " ")
		}
	}
	return all, nil
}

// leaveOut returns the mutants that are not known to change nothing. An entry for no mutant is an error.
func (k known) leaveOut(all []Mutant) ([]Mutant, error) {
	var rest []Mutant
	used := map[string]bool{}
	for _, m := range all {
		if _, ok := k[m.key()]; ok {
			used[m.key()] = true
		} else {
			rest = append(rest, m)
		}
	}
	for key := range k {
		if !used[key] {
			return nil, fmt.Errorf("equivalents.txt names no change of this tree: %s", strings.ReplaceAll(key, "\t", " | "))
		}
	}
	return rest, nil
}
