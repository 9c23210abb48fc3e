package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// The chapters of the demo. What they read of the cluster is what the contract's JSON shapes promise.

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

// until asks again every 50 ms until done or the limit is over.
func until(ctx context.Context, what string, limit time.Duration, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var last error
	for {
		ok, err := done()
		if ok {
			return nil
		}
		last = err
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not happen within %s (last: %w)", what, limit, last)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (d *demo) startCluster(ctx context.Context) error {
	d.title("Three servers and four agents start, each a process of its own; TLS is always on")
	for _, m := range append(append([]*member{}, d.servers...), d.agents...) {
		if err := d.start(m); err != nil {
			return err
		}
	}
	began := time.Now()
	watched, cancel := d.whileAllRun(ctx)
	defer cancel()
	err := until(watched, "four eligible nodes", 60*time.Second, func() (bool, error) {
		n, err := d.eligible(ctx)
		return n == len(d.agents), err
	})
	if err != nil {
		return errors.Join(context.Cause(watched), err)
	}
	d.measured("cluster of 3 + 4 ready after", "%s", time.Since(began).Round(10*time.Millisecond))
	if err := d.show(ctx, 0, "server", "members"); err != nil {
		return err
	}
	if err := d.show(ctx, 0, "node", "ls"); err != nil {
		return err
	}
	var nodes nodeList
	if err := d.get(ctx, &nodes, "node", "ls"); err != nil {
		return err
	}
	for _, warning := range nodes.Items[0].Warnings { // the same on all: they are one machine
		d.say("%s", warning)
	}
	return nil
}

// whileAllRun returns a context that ends when one of the processes does.
func (d *demo) whileAllRun(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	for _, m := range append(append([]*member{}, d.servers...), d.agents...) {
		go func() {
			select {
			case <-m.ended:
				cancel(fmt.Errorf("%s ended by itself", m.name))
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() { cancel(nil) }
}

func (d *demo) eligible(ctx context.Context) (int, error) {
	var nodes nodeList
	err := d.get(ctx, &nodes, "node", "ls")
	n := 0
	for _, item := range nodes.Items {
		if item.Eligible {
			n++
		}
	}
	return n, err
}

func (d *demo) runJob(ctx context.Context) error {
	d.title(fmt.Sprintf("A web service of %d instances, planned first, then run", demoInstances))
	var err error
	if d.port, err = d.exposedPort(); err != nil {
		return err
	}
	file, err := d.jobFile()
	if err != nil {
		return err
	}
	if err := d.show(ctx, 0, "job", "plan", file); err != nil {
		return err
	}
	if err := d.show(ctx, 0, "job", "run", file); err != nil {
		return err
	}
	if err := d.waitReady(ctx); err != nil {
		return err
	}
	var targets []string
	for _, m := range d.agents {
		targets = append(targets, d.service(m))
	}
	d.prober = newProber(targets)
	d.say("A prober sends 50 requests a second to port %d of the agents from now on.", d.port)
	return d.show(ctx, 0, "job", "status", "web")
}

// ready counts the instances that serve now.
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
	err := d.get(ctx, &list, "instance", "ls")
	return list, err
}

func (d *demo) waitReady(ctx context.Context) error {
	return until(ctx, "all instances ready", 60*time.Second, func() (bool, error) {
		n, err := d.ready(ctx)
		return n >= demoInstances, err
	})
}

func (d *demo) drainNode(ctx context.Context) error {
	d.title("Drain a machine: replacements first, then the stops")
	if err := d.show(ctx, 0, "node", "drain", "n1", "--dry-run"); err != nil {
		return err
	}
	before, began := d.prober.tally(), time.Now()
	if err := d.show(ctx, 0, "node", "drain", "n1", "-m", "kernel update"); err != nil {
		return err
	}
	took := time.Since(began)
	if err := d.emptied(ctx, "n1"); err != nil {
		return err
	}
	after := d.prober.tally()
	d.measured("drain of n1", "%s", took.Round(10*time.Millisecond))
	d.measured("failed requests in that drain", "%d of %d", after.failed-before.failed, after.sent-before.sent)
	if after.failed != before.failed {
		return fmt.Errorf("%d requests failed in the drain; the last: %s", after.failed-before.failed, after.last)
	}
	return d.show(ctx, 0, "node", "uncordon", "n1")
}

// emptied asserts that a node holds nothing any more, also by the process table.
func (d *demo) emptied(ctx context.Context, name string) error {
	var nodes nodeList
	if err := d.get(ctx, &nodes, "node", "ls"); err != nil {
		return err
	}
	for _, item := range nodes.Items {
		if item.Name == name && item.Instances != 0 {
			return fmt.Errorf("node %s is drained but holds %d instances", name, item.Instances)
		}
	}
	for _, m := range d.agents {
		if m.name == name {
			return until(ctx, "no process left on "+name+" by the kernel's word", 2*time.Second, func() (bool, error) {
				return len(d.instancePIDs(m)) == 0, fmt.Errorf("processes %v", d.instancePIDs(m))
			})
		}
	}
	return nil
}

// instancePIDs are the processes of an agent's instances that are not yet reaped.
func (d *demo) instancePIDs(m *member) []int {
	var alive []int
	for _, pid := range d.processesOf(m) {
		if !zombie(pid) {
			alive = append(alive, pid)
		}
	}
	return alive
}

func (d *demo) loseMachine(ctx context.Context) error {
	d.title("A machine dies: kill -9 of the agent n2 and of everything that it runs")
	victim := d.agents[1]
	d.prober.avoid(d.service(victim))
	wait(ctx, 100*time.Millisecond) // requests under way to it end
	before, began := d.prober.tally(), time.Now()
	d.kill(victim, true)
	err := until(ctx, "n2 offline", 30*time.Second, func() (bool, error) {
		return d.stateOf(ctx, "n2", "offline")
	})
	if err != nil {
		return err
	}
	var at time.Time
	err = until(ctx, "the event of that", 10*time.Second, func() (found bool, err error) {
		at, found, err = d.eventTime(ctx, "node.state_changed", "offline", began)
		return found, err
	})
	if err != nil {
		return err
	}
	d.measured("detection: kill -9 of a machine -> marked offline", "%s", at.Sub(began).Round(10*time.Millisecond))
	if err := d.waitReady(ctx); err != nil {
		return err
	}
	after := d.prober.tally()
	d.measured("replacement: kill -9 of a machine -> all ready elsewhere", "%s", time.Since(began).Round(10*time.Millisecond))
	d.measured("failed requests while it was dead and not yet found", "%d of %d", after.failed-before.failed, after.sent-before.sent)
	return d.show(ctx, 0, "node", "ls")
}

func (d *demo) stateOf(ctx context.Context, name, want string) (bool, error) {
	var nodes nodeList
	if err := d.get(ctx, &nodes, "node", "ls"); err != nil {
		return false, err
	}
	for _, item := range nodes.Items {
		if item.Name == name {
			return item.State == want, nil
		}
	}
	return false, fmt.Errorf("there is no node %s", name)
}

// eventTime finds when an event with that outcome was written, not before a moment.
func (d *demo) eventTime(ctx context.Context, kind, after string, from time.Time) (at time.Time, found bool, err error) {
	var list struct{ Items []eventView }
	if err := d.get(ctx, &list, "events", "--type", kind); err != nil {
		return at, false, err
	}
	for _, e := range list.Items {
		if e.Type == kind && e.Data.After == after && e.Time.After(from.Add(-time.Second)) {
			return e.Time, true, nil
		}
	}
	return at, false, nil
}

func (d *demo) loseLeader(ctx context.Context) error {
	d.title("The leader dies in the middle of a drain")
	if err := d.show(ctx, 0, "node", "drain", "n3", "--detach", "--id", "tuesday"); err != nil {
		return err
	}
	var first drainView
	if err := d.get(ctx, &first, "drain", "status", "tuesday"); err != nil {
		return err
	}
	leader, err := d.leader(ctx)
	if err != nil {
		return err
	}
	before, began := d.prober.tally(), time.Now()
	d.say("kill -9 of %s, the leader", leader.name)
	d.kill(leader, false)
	err = until(ctx, "a new leader", 30*time.Second, func() (bool, error) {
		next, err := d.leader(ctx)
		return err == nil && next != leader, err
	})
	if err != nil {
		return err
	}
	d.measured("failover: kill -9 of the leader -> a new one answers", "%s", time.Since(began).Round(10*time.Millisecond))
	if err := d.show(ctx, 0, "drain", "watch", "tuesday"); err != nil {
		return err
	}
	d.measured("the same drain done after the kill", "%s", time.Since(began).Round(10*time.Millisecond))
	after := d.prober.tally()
	d.measured("failed requests in that drain", "%d of %d", after.failed-before.failed, after.sent-before.sent)
	var last drainView
	if err := d.get(ctx, &last, "drain", "status", "tuesday"); err != nil {
		return err
	}
	switch {
	case last.Phase != "drained":
		return fmt.Errorf("the drain ended as %s", last.Phase)
	case first.Nodes[0].Deadline != last.Nodes[0].Deadline:
		return fmt.Errorf("the deadline moved from %s to %s", first.Nodes[0].Deadline, last.Nodes[0].Deadline)
	case after.failed != before.failed:
		return fmt.Errorf("%d requests failed in the drain; the last: %s", after.failed-before.failed, after.last)
	}
	if err := d.start(leader); err != nil {
		return err
	}
	return d.onePerSlot(ctx)
}

func (d *demo) leader(ctx context.Context) (*member, error) {
	var members memberList
	if err := d.get(ctx, &members, "server", "members"); err != nil {
		return nil, err
	}
	for _, item := range members.Items {
		for _, m := range d.servers {
			if item.Leader && item.Name == m.name {
				return m, nil
			}
		}
	}
	return nil, fmt.Errorf("no leader among the members")
}

// onePerSlot asserts that the failover made no second replacement.
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

func (d *demo) comeBack(ctx context.Context) error {
	d.title("The dead machine returns, and the drained one is used again")
	if err := d.start(d.agents[1]); err != nil {
		return err
	}
	if err := d.show(ctx, 0, "node", "uncordon", "n3"); err != nil {
		return err
	}
	err := until(ctx, "four eligible nodes", 60*time.Second, func() (bool, error) {
		n, err := d.eligible(ctx)
		return n == len(d.agents), err
	})
	if err != nil {
		return err
	}
	if err := d.waitReady(ctx); err != nil {
		return err
	}
	d.prober.use(d.service(d.agents[1]))
	if err := d.show(ctx, 0, "job", "status", "web"); err != nil {
		return err
	}
	total := d.prober.tally()
	d.measured("requests in all, failed", "%d, %d", total.sent, total.failed)
	return nil
}
