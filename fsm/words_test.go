package fsm

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/model"
)

// TestHistoriesInWords has wordyHistories histories of wordySteps entries each.
const (
	wordyHistories = 8
	wordySteps     = 150
)

// TestHistoriesInWords applies a few random histories, writes down each changed row, and compares the text with a file.
// If they differ, servers of the old and the new version would make different states from one log (S5), unless the new
// behaviour depends on the cluster's format. If no release has the old behaviour, rewrite the files with -rewrite.
func TestHistoriesInWords(t *testing.T) {
	for n := range wordyHistories {
		t.Run(fmt.Sprintf("history%d", n), func(t *testing.T) {
			got := wordyHistory(uint64(n))
			path := filepath.Join("testdata", "words", fmt.Sprintf("history%d.txt", n))
			if *rewrite {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
				t.Errorf("%s: these commands don't do what they did. If no release has the old behaviour: go test ./fsm "+
					"-run HistoriesInWords -rewrite\n%s", path, diff)
			}
		})
	}
}

func wordyHistory(n uint64) string {
	var out strings.Builder
	s, seq, term := NewState(), 0, uint64(1)
	r := rand.New(rand.NewPCG(n, 1))
	for range wordySteps {
		w := newWorld(r.Uint64(), &s, &seq)
		if w.rarely(20) {
			term++
		}
		e := w.entry(term)
		if s.Index == 0 {
			e = w.beginning()
		}
		s = inWords(&out, s, term, e)
	}
	return out.String()
}

// inWords applies an entry and returns the state after it. It writes the entry's refusals, the topics that the entry
// wakes, and the changed rows to out.
func inWords(out *strings.Builder, s State, term uint64, e Entry) State {
	fork := s.fork()
	results := fork.applyNext(s.Index+1, term, e)
	fmt.Fprintf(out, "%d", s.Index+1)
	for i, r := range results {
		for _, c := range e.Groups[i] {
			fmt.Fprintf(out, " %s", KindName(c.Kind()))
		}
		if r.Replay {
			out.WriteString(" again")
		}
		if r.Refusal != nil {
			fmt.Fprintf(out, ": %s: %s", r.Refusal.Code, r.Refusal.Message)
		}
	}
	var woken []string
	for _, topic := range fork.entry.touched.tables {
		woken = append(woken, string(topic))
	}
	for _, o := range fork.entry.touched.objects {
		woken = append(woken, o.noun+o.id)
	}
	slices.Sort(woken)
	fmt.Fprintf(out, "\n  wakes %s\n", strings.Join(slices.Compact(woken), " "))
	after := fork.publish()
	for _, row := range Diff(s, after) {
		fmt.Fprintf(out, "  %s %s %s", row.Table, row.Key, row.Change)
		for _, f := range row.Fields {
			if row.Change != RowRemoved {
				fmt.Fprintf(out, " %s=%s", f.Path, brief(f.After))
			}
		}
		out.WriteString("\n")
	}
	return after
}

// brief returns a value as text. It shortens a long text to its beginning and a checksum of the whole text.
func brief(v any) string {
	text := fmt.Sprint(v)
	if len(text) <= 60 {
		return text
	}
	sum := fnv.New32a()
	fmt.Fprint(sum, text)
	return fmt.Sprintf("%s...%x", model.ClipText(text, 40), sum.Sum32())
}
