package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// options are the flags of a run.
type options struct {
	binary    string
	dir       string // parent of the data directories of servers and of bare raft nodes
	json      string
	only      *regexp.Regexp
	nodes     int
	instances int           // number of instances in the filled cluster
	group     int           // number of instances that are placed at once
	length    time.Duration // duration of each load
	rounds    int           // how often killOne kills; other cases derive their repetitions from it
	soak      time.Duration
	profile   string
	patience  int    // raft_multiplier of the servers
	nomad     string // path of a Nomad binary that also runs the cases that Nomad supports; "" means none
	list      bool
}

// readOptions parses and checks the flags. A run with the defaults takes about five minutes on two cores.
func readOptions(args []string, out io.Writer) (options, error) {
	var o options
	set := flag.NewFlagSet("bench", flag.ContinueOnError)
	set.SetOutput(out)
	set.StringVar(&o.binary, "bin", "bin/outspan", "the program that is measured")
	set.StringVar(&o.dir, "dir", os.TempDir(), "directory for the servers' data: measure on the disk that you mean")
	set.StringVar(&o.json, "json", "", "write the figures to this file, as JSON")
	set.IntVar(&o.nodes, "nodes", 500, "simulated agents")
	set.IntVar(&o.instances, "instances", 10_000, "instances in the filled cluster")
	set.IntVar(&o.group, "group", 10_000, "instances that are placed at once")
	set.DurationVar(&o.length, "length", 3*time.Second, "how long each load lasts")
	set.IntVar(&o.rounds, "rounds", 5, "how often machines are killed")
	set.DurationVar(&o.soak, "soak", 0, "instead of the cases: half load for so long, and what grows meanwhile")
	set.StringVar(&o.profile, "profile", "",
		"directory for the servers' CPU and heap profiles, of a program built with -tags profile")
	set.IntVar(&o.patience, "patience", 1,
		"raft_multiplier of the servers: more where the machine has no time for them; failover takes longer by it")
	set.StringVar(&o.nomad, "nomad", "",
		"a Nomad binary: what it can play of the chosen cases is played by it too, in the same run")
	set.BoolVar(&o.list, "list", false, "list the cases")
	only := set.String("case", "", "run only the cases that match this regular expression")
	full := set.Bool("full", false, "5,000 nodes, 100,000 instances")
	if err := set.Parse(args); err != nil {
		return o, err
	}
	if *full {
		given := map[string]bool{}
		set.Visit(func(f *flag.Flag) { given[f.Name] = true })
		if !given["nodes"] {
			o.nodes = 5000
		}
		if !given["instances"] {
			o.instances = 100_000
		}
		if !given["rounds"] {
			o.rounds = 15
		}
	}
	var err error
	if o.only, err = regexp.Compile(*only); err != nil {
		return o, fmt.Errorf("-case: %w", err)
	}
	if o.nodes < 5 || o.instances < o.nodes || o.group < 100 {
		return o, fmt.Errorf("-nodes is at least 5, -instances at least -nodes, -group at least 100")
	}
	if o.binary, err = filepath.Abs(o.binary); err != nil {
		return o, err
	}
	_, err = os.Stat(o.binary)
	return o, err
}
