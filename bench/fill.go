package main

import (
	"context"
	"fmt"
	"time"

	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/model"
)

// fill starts instances until the cluster has as many as the option -instances, and waits until the servers write no
// more entries. If an earlier case filled the cluster already, fill does nothing.
func (st *stage) fill(ctx context.Context) error {
	if st.filled >= st.o.instances {
		return nil
	}
	for st.filled < st.o.instances {
		n := min(st.o.group, st.o.instances-st.filled)
		jobs := st.newJobs([]model.GroupSpec{groupSpec("g", n)})
		if err := st.submit(ctx, jobs[0]); err != nil {
			return err
		}
		if err := st.waitReady(ctx, jobs); err != nil {
			return err
		}
		st.filled += n
	}
	return st.quiet(ctx)
}

// settle waits until all instances of the filled cluster are ready, no other instances run, and the servers write no
// more entries.
func (st *stage) settle(ctx context.Context) error {
	err := procs.Until(ctx, startLimit, 100*time.Millisecond, func(ctx context.Context) error {
		s, err := st.status(ctx)
		if err == nil && (s.Instances["ready"] != st.filled || st.crowd.Running() != st.filled) {
			err = fmt.Errorf("instances: %v, agents run %d, want %d", s.Instances, st.crowd.Running(), st.filled)
		}
		return err
	})
	if err != nil {
		return err
	}
	return st.quiet(ctx)
}
