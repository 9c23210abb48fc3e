package fsm

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

// Similar returns at most three names that a mistyped word may have meant: names of jobs and nodes, or of groups if the
// word has a slash.
func (f Finder) Similar(word string) []string {
	if strings.Contains(word, "/") {
		return similar(f.state.Groups, model.GroupID(word), f.seesRow("group"))
	}
	near := similar(f.state.Jobs, model.JobName(word), f.seesRow("job"))
	for _, name := range similar(f.state.nodeNames, word, f.seesNode) {
		if !slices.Contains(near, name) {
			near = append(near, name)
		}
	}
	return near[:min(len(near), maxNear)]
}

// similar returns at most three keys of a table that sees accepts: those nearest to word. At most three letters may
// differ, and at most a third of the letters of word.
func similar[K ~string, V any](t Table[K, V], word K, sees func(key string) bool) []string {
	var found []string
	least := min(len(word)/3, 3)
	if least == 0 {
		return nil
	}
	for key := range t.All() {
		switch d := model.Distance(string(word), string(key)); {
		case d > least || d == least && len(found) == maxNear || !sees(string(key)):
		case d < least:
			least, found = d, []string{string(key)}
		default:
			found = append(found, string(key))
		}
	}
	return found
}

// withSimilar replaces the hint of a plain refusal by a better one: what suggest finds, or else similar keys of the
// table.
func withSimilar[K ~string, V any](f Finder, t Table[K, V], noun, word string, refusal *model.Error) *model.Error {
	if refusal = f.suggest(noun, word, refusal); !plain(noun, word, refusal) {
		return refusal
	}
	return didYouMean(similar(t, K(word), f.seesRow(noun)), refusal)
}

func didYouMean(near []string, refusal *model.Error) *model.Error {
	if len(near) == 0 {
		return refusal
	}
	return refusal.WithHint("did you mean %s? %s", strings.Join(near, " or "), refusal.Hint)
}

// plain reports whether a refusal means that nothing was found, and has only the general hint for the noun.
func plain(noun, word string, refusal *model.Error) bool {
	return refusal != nil && refusal.Code == model.CodeNotFound && refusal.Hint == model.NoSuch(noun, word, nil).Hint
}

// suggest replaces the hint of a plain refusal by a better one, if a job or a node has the name, or if names of nodes
// are similar.
func (f Finder) suggest(noun, word string, refusal *model.Error) *model.Error {
	if !plain(noun, word, refusal) {
		return refusal
	}
	isJob := f.state.Jobs.Has(model.JobName(word)) && f.sees("job/"+word)
	isNode := f.seesNode(word)
	job, group, isGroup := strings.Cut(word, "/")
	switch {
	case isGroup && noun == "instance" && f.state.Jobs.Has(model.JobName(job)) && f.sees("job/"+job):
		return refusal.WithHint("%s is a group: outspan instance ls --job %s --group %s", word, job, group)
	case isJob && noun == "instance":
		return refusal.WithHint("%s is a job: outspan instance ls --job %s", word, word)
	case isNode && noun == "instance":
		return refusal.WithHint("%s is a node: outspan instance ls --node %s", word, word)
	case isJob:
		return refusal.WithHint("%s is a job: outspan job status %s", word, word)
	case isNode:
		return refusal.WithHint("%s is a node: outspan node status %s", word, word)
	case noun == "node":
		return didYouMean(similar(f.state.nodeNames, word, f.seesNode), refusal)
	}
	return refusal
}

// anyOf formats two or more names as "a, b or c".
func anyOf(names []string) string {
	last := len(names) - 1
	return fmt.Sprintf("%s or %s", strings.Join(names[:last], ", "), names[last])
}
