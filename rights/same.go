package rights

import (
	"slices"
	"strings"
)

// maxParts bounds how many parts of a verb Same compares with each other.
const maxParts = 300

// part is a set of things that grants allow a verb on: those within its lists of names, and for SubmitJob within
// askLists.
type part [][]string

// nameLists is how many lists of a part have names of things.
const nameLists = 3

// Same reports whether the caller of p and that of other have a verb on the same things. By how many grants and roles
// they have it does not matter.
func (p *Permissions) Same(other *Permissions, verb Verb) bool {
	return p.local == other.local && slices.EqualFunc(p.parts(verb), other.parts(verb), func(a, b part) bool {
		return a.compare(b) == 0
	})
}

// parts returns what the caller has a verb on, sorted, without what lies within another part.
func (p *Permissions) parts(verb Verb) []part {
	var all []part
	for _, h := range p.held[verb] {
		one := part{sorted(h.Grant.Jobs), sorted(h.Grant.Nodes), sorted(h.Grant.Classes)}
		for _, list := range askLists {
			switch patterns := *list.of(h.Grant); {
			case verb != SubmitJob:
			case list.free(patterns):
				one = append(one, []string{anyName})
			default:
				one = append(one, sorted(patterns))
			}
		}
		all = append(all, one.split()...)
	}
	slices.SortFunc(all, part.compare)
	all = slices.CompactFunc(all, func(a, b part) bool { return a.compare(b) == 0 })
	if len(all) > maxParts {
		return all
	}
	var kept []part
	for i, one := range all {
		within := func(other part) bool { return one.within(other) }
		// If two parts lie within each other, the first stays.
		if !slices.ContainsFunc(kept, within) && !slices.ContainsFunc(all[i+1:], func(other part) bool {
			return one.within(other) && !other.within(one)
		}) {
			kept = append(kept, one)
		}
	}
	return kept
}

func sorted(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

// split returns a part for each name if only one list restricts p, and else p.
func (p part) split() (all []part) {
	at := -1
	for i, list := range p[:nameLists] {
		switch {
		case len(list) == 0:
		case at >= 0:
			return []part{p}
		default:
			at = i
		}
	}
	if at < 0 {
		return []part{p}
	}
	for i := range p[at] {
		one := slices.Clone(p)
		one[at] = p[at][i : i+1]
		all = append(all, one)
	}
	return all
}

// within reports whether p allows nothing that other does not allow.
func (p part) within(other part) bool {
	for i, list := range other {
		asks := i >= nameLists
		if !asks && len(list) == 0 || slices.Contains(list, anyName) && (asks || len(p[i]) > 0) {
			continue
		}
		lacks := func(one string) bool { return !slices.Contains(list, one) }
		if !asks && len(p[i]) == 0 || slices.ContainsFunc(p[i], lacks) {
			return false
		}
	}
	return true
}

func (p part) compare(other part) int {
	for i := range p {
		if c := slices.CompareFunc(p[i], other[i], strings.Compare); c != 0 {
			return c
		}
	}
	return 0
}
