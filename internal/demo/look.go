package demo

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// The demo reads the state of the cluster from the JSON output of commands. It uses only documented fields.

type nodeList struct {
	Items []struct {
		ID, Name, State string
		Eligible        bool
		Instances       int
		Warnings        []string
	}
}

type instanceList struct {
	Items []struct {
		ID, Node, Desired, Observed, Replaces string
		Slot                                  int
	}
}

type memberList struct {
	Items []struct {
		Name   string
		Leader bool
	}
}

type drainView struct {
	ID, Phase string
	Nodes     []struct {
		Deadline string
		Moved    int
	}
}

type eventView struct {
	Type, Subject string
	Time          time.Time
	Data          struct{ Before, After string }
}

// until calls done every 50 ms, until done returns true. It returns an error when limit has passed or ctx is canceled.
// The error begins with the parameter what, the name of the awaited event.
func until(ctx context.Context, what string, limit time.Duration, done func() (bool, error)) error {
	err := procs.Until(ctx, limit, 50*time.Millisecond, func(context.Context) error {
		ok, err := done()
		if ok {
			return nil
		}
		return fmt.Errorf("last: %v", err) //nolint:errorlint // err may be nil
	})
	if err != nil {
		return fmt.Errorf("%s did not happen: %w", what, err)
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// whileRunning returns a context that is canceled when one of the members exits. They must have been started. The
// caller must call the returned function.
func whileRunning(ctx context.Context, members ...*procs.Member) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, m := range members {
		go func() {
			select {
			case <-m.Ended:
				cancel(fmt.Errorf("%s ended by itself", m.Name))
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

// waitEligible waits until every node is eligible. It returns an error after 60 s.
func (d *demo) waitEligible(ctx context.Context) error {
	return until(ctx, "every node eligible", 60*time.Second, func() (bool, error) {
		var nodes nodeList
		err := d.Get(ctx, &nodes, "node", "ls")
		n := 0
		for _, item := range nodes.Items {
			if item.Eligible {
				n++
			}
		}
		return n == len(d.Agents), err
	})
}

// ready returns the number of instances that should run and are ready.
func (d *demo) ready(ctx context.Context) (int, error) {
	list, err := d.instances(ctx)
	n := 0
	for _, item := range list.Items {
		if item.Desired == "running" && item.Observed == "ready" {
			n++
		}
	}
	return n, err
}

func (d *demo) instances(ctx context.Context) (instanceList, error) {
	var list instanceList
	err := d.Get(ctx, &list, "instance", "ls")
	return list, err
}

func (d *demo) waitReady(ctx context.Context) error {
	return until(ctx, "all instances ready", 60*time.Second, func() (bool, error) {
		n, err := d.ready(ctx)
		return n >= demoInstances, err
	})
}

// emptied checks that a node has no instances any more, in the view of the servers and in the kernel's process table.
func (d *demo) emptied(ctx context.Context, name string) error {
	var nodes nodeList
	if err := d.Get(ctx, &nodes, "node", "ls"); err != nil {
		return err
	}
	for _, item := range nodes.Items {
		if item.Name == name && item.Instances != 0 {
			return fmt.Errorf("node %s is drained but holds %d instances", name, item.Instances)
		}
	}
	for _, m := range d.Agents {
		if m.Name == name {
			return until(ctx, "no process left on "+name+" by the kernel's word", 2*time.Second, func() (bool, error) {
				return len(d.ProcessesOf(m, "shim")) == 0, fmt.Errorf("processes %v", d.ProcessesOf(m, "shim"))
			})
		}
	}
	return nil
}

// allPIDs returns the process ids of all instances and their shims, sorted.
func (d *demo) allPIDs() (all []int) {
	for _, m := range d.Agents {
		all = append(all, d.ProcessesOf(m, "shim")...)
	}
	slices.Sort(all)
	return all
}

func (d *demo) stateOf(ctx context.Context, name, want string) (bool, error) {
	var nodes nodeList
	if err := d.Get(ctx, &nodes, "node", "ls"); err != nil {
		return false, err
	}
	for _, item := range nodes.Items {
		if item.Name == name {
			return item.State == want, nil
		}
	}
	return false, fmt.Errorf("there is no node %s", name)
}

// eventTime returns the time of the first event whose Type equals kind and whose Data.After equals after. It ignores
// events that happened more than a second before the time in from.
func (d *demo) eventTime(ctx context.Context, kind, after string, from time.Time) (at time.Time,
	found bool, err error) {
	var list struct{ Items []eventView }
	if err := d.Get(ctx, &list, "events", "--type", kind); err != nil {
		return at, false, err
	}
	for _, e := range list.Items {
		if e.Type == kind && e.Data.After == after && e.Time.After(from.Add(-time.Second)) {
			return e.Time, true, nil
		}
	}
	return at, false, nil
}

func (d *demo) leader(ctx context.Context) (*procs.Member, error) {
	var members memberList
	if err := d.Get(ctx, &members, "server", "members"); err != nil {
		return nil, err
	}
	for _, item := range members.Items {
		for _, m := range d.Servers {
			if item.Leader && item.Name == m.Name {
				return m, nil
			}
		}
	}
	return nil, fmt.Errorf("no leader among the members")
}

// onePerSlot checks, after the failover, that no slot has two instances that should run. It records the number of slots
// that have such an instance.
func (d *demo) onePerSlot(ctx context.Context) error {
	list, err := d.instances(ctx)
	if err != nil {
		return err
	}
	slots := map[int][]string{}
	for _, item := range list.Items {
		if item.Desired == "running" {
			slots[item.Slot] = append(slots[item.Slot], item.ID)
		}
	}
	for slot, ids := range slots {
		if len(ids) > 1 {
			return fmt.Errorf("slot %d has %d running instances: %s", slot, len(ids), strings.Join(ids, " "))
		}
	}
	d.measured("instances running after the failover", "%d, one in each slot", len(slots))
	return nil
}
