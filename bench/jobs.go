package main

import (
	"context"
	"fmt"
	"time"

	"github.com/outspan/outspan/bench/fleet"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/model"
)

// groupSpec returns a group of small instances. Their command is never run, because the simulated agents run no
// programs.
func groupSpec(name string, count int) model.GroupSpec {
	return model.GroupSpec{
		Name: name, Count: count, Exec: model.ExecSpec{Command: "/bin/true"},
		Resources: model.Resources{CPU: 10, MemoryBytes: 16 << 20},
		Stop:      model.StopSpec{Grace: 1000, DrainDelay: 1},
	}
}

// jobName returns a name that no earlier job of the stage has.
func (st *stage) jobName() model.JobName {
	st.jobs++
	return model.JobName(fmt.Sprintf("job-%03d", st.jobs))
}

type jobAnswer struct {
	Groups []struct {
		Ready  int `json:"ready"`
		Placed int `json:"placed"`
	} `json:"groups"`
}

func (st *stage) submit(ctx context.Context, job model.JobSpec) error {
	_, err := fleet.Post(ctx, st.fleet.Any(), "/v1/jobs", map[string]any{"job": job}, nil)
	return err
}

// newJobs makes one job from each list of groups. It does not submit the jobs.
func (st *stage) newJobs(groups ...[]model.GroupSpec) []model.JobSpec {
	var jobs []model.JobSpec
	for _, list := range groups {
		jobs = append(jobs, model.JobSpec{Name: st.jobName(), Groups: list})
	}
	return jobs
}

// instances returns the sum of the counts of all groups.
func instances(jobs []model.JobSpec) int {
	n := 0
	for _, job := range jobs {
		for _, g := range job.Groups {
			n += g.Count
		}
	}
	return n
}

// startLimit limits each wait until instances have started or stopped.
const startLimit = 5 * time.Minute

// waitReady blocks until all instances of the jobs are ready. It asks the servers only when the agents run all
// instances. An earlier request would disturb the measurement, because a server makes a whole decision to answer about
// a job with instances that are not placed.
func (st *stage) waitReady(ctx context.Context, jobs []model.JobSpec) error {
	want := instances(jobs)
	return procs.Until(ctx, startLimit, 50*time.Millisecond, func(ctx context.Context) error {
		if running := st.crowd.Running(); running < st.filled+want {
			return fmt.Errorf("agents run %d instances, want %d", running, st.filled+want)
		}
		ready := 0
		for _, job := range jobs {
			var answer jobAnswer
			if err := fleet.Get(ctx, st.fleet.Any(), "/v1/jobs/"+string(job.Name), &answer); err != nil {
				return err
			}
			for _, g := range answer.Groups {
				ready += g.Ready
			}
		}
		if ready < want {
			return fmt.Errorf("%d of %d instances are ready", ready, want)
		}
		return nil
	})
}

// purge stops jobs, and waits until the cluster has no more than st.filled instances.
func (st *stage) purge(ctx context.Context, jobs []model.JobSpec) error {
	for _, job := range jobs {
		if _, err := fleet.Post(ctx, st.fleet.Any(), "/v1/jobs/"+string(job.Name)+"/stop",
			map[string]any{"purge": true}, nil); err != nil {
			return err
		}
	}
	return procs.Until(ctx, startLimit, 100*time.Millisecond, func(ctx context.Context) error {
		if running := st.crowd.Running(); running > st.filled {
			return fmt.Errorf("agents run %d instances, want %d", running, st.filled)
		}
		s, err := st.status(ctx)
		if err == nil && s.Instances["total"] > st.filled {
			err = fmt.Errorf("instances: %v, want %d", s.Instances, st.filled)
		}
		return err
	})
}
