package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// commandLine measures how long two commands take, from the start of the process to its exit.
func commandLine(ctx context.Context, st *stage) error {
	start, _, err := st.outspan(ctx, 10, "version")
	if err != nil {
		return err
	}
	st.add(Figure{What: "outspan version, median", Value: millis(start), Unit: Millis, Goal: below(30)})
	list, out, err := st.outspan(ctx, 5, "node", "ls")
	if err != nil {
		return err
	}
	if lines := bytes.Count(out, []byte("\n")); lines < st.crowd.Len() {
		return fmt.Errorf("node ls prints %d lines, there are %d nodes", lines, st.crowd.Len())
	}
	st.add(Figure{What: fmt.Sprintf("outspan node ls, %d nodes, median", st.crowd.Len()), Value: millis(list),
		Unit: Millis, Goal: below(150)})
	return nil
}

// outspan runs a command several times against the servers' sockets. It returns the median time and the output of the
// last run.
func (st *stage) outspan(ctx context.Context, times int, args ...string) (time.Duration, []byte, error) {
	var sockets []string
	for _, s := range st.fleet.Servers {
		sockets = append(sockets, "unix://"+s.Socket())
	}
	var all []time.Duration
	var out []byte
	for range times {
		call, cancel := context.WithTimeout(ctx, 30*time.Second)
		cmd := exec.CommandContext(call, st.o.binary, args...)
		cmd.Env = append(os.Environ(), "OUTSPAN_ADDR="+strings.Join(sockets, ","), "NO_COLOR=1", "OUTSPAN_PROFILE=")
		began := time.Now()
		text, err := cmd.CombinedOutput()
		all = append(all, time.Since(began))
		cancel()
		if err != nil {
			return 0, nil, fmt.Errorf("outspan %s: %w: %s", strings.Join(args, " "), err, text)
		}
		out = text
	}
	return quantile(all, 0.5), out, nil
}
