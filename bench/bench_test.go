package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// TestMain lets the test binary run as a node of bare raft, because the benchmark starts its own executable for each
// node.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == bareCommand {
		main()
		return
	}
	os.Exit(m.Run())
}

// proves that every case runs and gives figures. The test does not check speeds. With -short it runs only the cases
// that share one cluster. The bench stage of CI runs all cases.
func TestEveryCase(t *testing.T) {
	chosen := regexp.MustCompile(".")
	if testing.Short() {
		chosen = regexp.MustCompile("^(heartbeats|placements|writes)$")
	}
	dir := t.TempDir()
	binary := filepath.Join(dir, "outspan")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/outspan").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	file := filepath.Join(dir, "figures.json")
	var out bytes.Buffer
	err := run(ctx, []string{
		"-bin", binary, "-dir", dir, "-json", file, "-nodes", "5", "-instances", "100", "-group", "100",
		"-length", "100ms", "-rounds", "1",
		"-case", chosen.String(),
	}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	positive := map[string]int{}
	for _, f := range got.Figures {
		if f.Value > 0 {
			positive[f.Case]++
		}
		if f.Value < 0 {
			t.Errorf("%s: %s is %v", f.Case, f.What, f.Value)
		}
		if f.What == "acknowledged writes lost" && f.Value != 0 {
			t.Errorf("%v acknowledged writes were lost", f.Value)
		}
	}
	for _, c := range cases() {
		// The case heartbeats runs so briefly here that the kernel's CPU time may not have advanced.
		if chosen.MatchString(c.Name) && positive[c.Name] == 0 && c.Name != "heartbeats" {
			t.Errorf("%s gave no figure\n%s", c.Name, &out)
		}
	}
	if left, err := filepath.Glob(filepath.Join(dir, "outspan-bench-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// proves that the table shows the value next to its goal and its limit.
func TestTable(t *testing.T) {
	figures := []Figure{
		{Case: "a", What: "good", Value: 12.34, Unit: Millis, Goal: below(20), Limit: Limit{24.68, "of the disk"}},
		{Case: "b", What: "bad", Value: 5, Unit: PerSecond, Goal: atLeast(10)},
	}
	want := "CASE  WHAT  VALUE  UNIT  GOAL         OF LIMIT  LIMIT IN THIS RUN  NOTE\n" +
		"a     good  12.3   ms    <= 20.0 yes  50 %      24.7 of the disk\n" +
		"b     bad   5.00   /s    >= 10.0 no   -         -\n"
	if got := table(figures); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestQuantile(t *testing.T) {
	times := []time.Duration{5, 1, 4, 2, 3}
	for q, want := range map[float64]time.Duration{0: 1, 0.5: 3, 0.99: 5, 1: 5} {
		if got := quantile(times, q); got != want {
			t.Errorf("quantile %v: got %d, want %d", q, got, want)
		}
	}
	if got := quantile(nil, 0.5); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

// Even a short soak gives all its figures: the work done and the resources that the servers used.
func TestSoak(t *testing.T) {
	dir := t.TempDir()
	binary := filepath.Join(dir, "outspan")
	if out, err := exec.Command("go", "build", "-o", binary, "../cmd/outspan").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var out bytes.Buffer
	o, err := readOptions([]string{"-bin", binary, "-dir", dir, "-nodes", "5", "-instances", "100", "-group",
		"100", "-soak", "15s"}, &out)
	if err != nil {
		t.Fatal(err)
	}
	figures, err := soak(ctx, o, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, f := range figures {
		if failed := f.What == "writes refused or lost"; f.Case == "soak" && (f.Value > 0) == failed {
			t.Errorf("%s: %v", f.What, f.Value)
		}
	}
	if len(figures) < 8 {
		t.Errorf("%d figures\n%s", len(figures), &out)
	}
}
