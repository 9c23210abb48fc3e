package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// report is the content of the JSON file that -json names.
type report struct {
	Machine   machine  `json:"machine"`
	Nodes     int      `json:"nodes"`
	Instances int      `json:"instances"`
	Took      float64  `json:"took_seconds"`
	Figures   []Figure `json:"figures"`
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 && args[0] == bareCommand {
		return runBare(ctx, args[1:])
	}
	o, err := readOptions(args, out)
	if err != nil {
		return err
	}
	if o.list {
		for _, c := range cases() {
			fmt.Fprintf(out, "%-12s %s\n", c.Name, c.About)
		}
		return nil
	}
	began := time.Now()
	m, err := describeMachine(o.dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s\n%d nodes, %d instances\n\n", m, o.nodes, o.instances)
	figures, err := measure(ctx, o, out)
	fmt.Fprintf(out, "\n%s\n%s\n", m, table(figures))
	took := time.Since(began)
	fmt.Fprintf(out, "%d figures, %s\n", len(figures), took.Round(time.Second))
	if o.json != "" {
		text, jsonErr := json.MarshalIndent(report{Machine: m, Nodes: o.nodes, Instances: o.instances, Took: took.Seconds(),
			Figures: figures}, "", "  ")
		if jsonErr == nil {
			jsonErr = os.WriteFile(o.json, append(text, '\n'), 0o600)
		}
		err = errors.Join(err, jsonErr)
	}
	return err
}

// measure runs the soak if the options ask for it, and otherwise the chosen cases. If the options name a Nomad binary,
// the chosen cases that Nomad supports run on a Nomad cluster afterwards. measure stops at the first case that fails,
// because later cases may need the instances that this case should have left. After an error, measure still returns the
// figures measured so far.
func measure(ctx context.Context, o options, out io.Writer) ([]Figure, error) {
	if o.soak > 0 {
		return soak(ctx, o, out)
	}
	l := &limits{}
	if slices.ContainsFunc(cases(), func(c Case) bool { return c.Limits && o.only.MatchString(c.Name) }) {
		var err error
		if l, err = measureLimits(ctx, o); err != nil {
			return nil, fmt.Errorf("limits: %w", err)
		}
	}
	var figures []Figure
	for _, where := range settings(o.nodes) {
		var chosen []Case
		for _, c := range cases() {
			if c.Stage.among(o.nodes) == where && o.only.MatchString(c.Name) {
				chosen = append(chosen, c)
			}
		}
		if len(chosen) == 0 {
			continue
		}
		found, err := onStage(ctx, o, l, where, chosen, out)
		if figures = append(figures, found...); err != nil {
			return figures, err
		}
	}
	if o.nomad != "" {
		found, err := besideNomad(ctx, o, out)
		return append(figures, found...), err
	}
	return figures, nil
}

// onStage starts a cluster, runs the chosen cases on it in order, and stops it. After an error, onStage still returns
// the figures measured so far.
func onStage(ctx context.Context, o options, l *limits, where setting, chosen []Case,
	out io.Writer) (_ []Figure, err error) {
	st, err := openStage(ctx, o, l, where, out)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, st.close()) }()
	for _, c := range chosen {
		began := time.Now()
		st.now = c.Name
		if err := c.Run(ctx, st); err != nil {
			st.explain()
			return st.figures, fmt.Errorf("%s: %w", c.Name, err)
		}
		st.say("%s took %s", c.Name, time.Since(began).Round(100*time.Millisecond))
	}
	return st.figures, nil
}
