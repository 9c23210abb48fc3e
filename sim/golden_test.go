package sim

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

var rewrite = flag.Bool("rewrite", false, "write the log of the current format anew")

// goldenSeed is the seed of the histories whose logs are kept in testdata/log, one history for each scenario and
// format.
const goldenSeed = 20261123

// TestGoldenLog checks that a log that was once written always leads to the same states. Servers of different versions
// apply the same entries, and a server that restarts replays its own log. A difference means that Apply now treats
// entries of that format differently. If the format was released, keep the files: the new behaviour needs a higher
// model.CurrentFormat, and Apply must depend on Entry.Format.
func TestGoldenLog(t *testing.T) {
	current := filepath.Join("testdata", "log", fmt.Sprintf("format%d", model.CurrentFormat))
	if *rewrite {
		writeGoldenLogs(t, current)
	}
	files, err := filepath.Glob("testdata/log/format*/*.log.gz")
	if err != nil || !slices.ContainsFunc(files, func(f string) bool { return filepath.Dir(f) == current }) {
		t.Fatalf("no log of format %d (%v); write it with: go test ./sim -run GoldenLog -rewrite", model.CurrentFormat, err)
	}
	for _, file := range files {
		t.Run(file, func(t *testing.T) {
			want, err := os.ReadFile(strings.TrimSuffix(file, ".log.gz") + ".digests")
			if err != nil {
				t.Fatal(err)
			}
			got, kinds := replay(t, file)
			if got != string(want) {
				t.Errorf("the log leads to other states: %s", firstDifference(got, string(want)))
			}
			if len(kinds) < 10 {
				t.Errorf("it has only commands of the kinds %v", kinds)
			}
		})
	}
}

// replay applies the entries of a log to an empty state. It returns the indexes and digests of some of the states, one
// pair per line, and the kinds of all commands.
func replay(t *testing.T, file string) (digests string, kinds map[string]bool) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zip, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(zip)
	if err != nil {
		t.Fatal(err)
	}
	in, state, text := bytes.NewReader(raw), fsm.NewState(), &strings.Builder{}
	kinds = map[string]bool{}
	for index := uint64(1); ; index++ {
		term, data, err := readLogged(in)
		if errors.Is(err, io.EOF) {
			fmt.Fprintf(text, "%d %s\n", index-1, fsm.Digest(state))
			return text.String(), kinds
		}
		if err != nil {
			t.Fatalf("entry %d: %v", index, err)
		}
		if len(data) == 0 {
			continue // an entry that a leader wrote when its term began
		}
		entry, err := fsm.DecodeEntry(data)
		if err != nil {
			t.Fatalf("entry %d: %v", index, err)
		}
		for _, group := range entry.Groups {
			for _, c := range group {
				kinds[fmt.Sprintf("%T", c)] = true
			}
		}
		state, _ = state.Apply(index, term, entry)
		if index%(4*digestEvery) == 0 {
			fmt.Fprintf(text, "%d %s\n", index, fsm.Digest(state))
		}
	}
}

func readLogged(in *bytes.Reader) (term uint64, data []byte, err error) {
	if term, err = binary.ReadUvarint(in); err != nil {
		return 0, nil, err
	}
	size, err := binary.ReadUvarint(in)
	if err != nil || size > uint64(in.Len()) {
		return 0, nil, fmt.Errorf("it ends within an entry: %w", errors.Join(err, io.ErrUnexpectedEOF))
	}
	data = make([]byte, size)
	_, err = io.ReadFull(in, data)
	return term, data, err
}

func writeGoldenLogs(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, sc := range scenarios() {
		w, result := run(Config{Seed: goldenSeed, Scenario: sc.name})
		if result.Failure != nil {
			t.Fatalf("scenario %s: %v", sc.name, result.Failure)
		}
		var raw []byte
		for _, e := range w.log.entries {
			raw = binary.AppendUvarint(raw, e.term)
			raw = append(binary.AppendUvarint(raw, uint64(len(e.data))), e.data...)
		}
		var zipped bytes.Buffer
		zip, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
		_, err := zip.Write(raw)
		path := filepath.Join(dir, sc.name)
		if err := errors.Join(err, zip.Close(), os.WriteFile(path+".log.gz", zipped.Bytes(), 0o600)); err != nil {
			t.Fatal(err)
		}
		digests, _ := replay(t, path+".log.gz")
		if err := os.WriteFile(path+".digests", []byte(digests), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %d entries, %d bytes", sc.name, len(w.log.entries), zipped.Len())
	}
}

func firstDifference(got, want string) string {
	was := strings.Split(want, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(was) || line != was[i] {
			return fmt.Sprintf("line %d is %q, want %q", i+1, line, slices.Concat(was, make([]string, i+1))[i])
		}
	}
	return "it ends early"
}
