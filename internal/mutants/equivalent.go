package main

import (
	"fmt"
	"strings"
)

// known contains the mutants that don't change the program's behaviour. It maps their keys (Mutant.key) to the reasons.
type known map[string]string

// readEquivalents parses the content of equivalents.txt. Each paragraph describes a mutant in four lines: package,
// function, change, and the changed source text. Further lines begin with "#" and give the reason. A paragraph in which
// all lines begin with "#" is a comment.
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
		case len(fields) == 0: // the paragraph is a comment
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

// leaveOut returns the mutants that are not in k. It returns an error if k has a key that no mutant has.
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
