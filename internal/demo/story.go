package demo

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outspan/outspan/internal/procs"
)

// The chapters of the demo, in the order in which they run.

func (d *demo) startCluster(ctx context.Context) error {
	d.title("Three servers and four agents join by tokens, each a process of its own; TLS is always on")
	began := time.Now()
	first := d.Servers[0]
	if err := d.begin(ctx, d.Servers[:1], "up", "--no-agent"); err != nil {
		return err
	}
	for _, step := range []struct {
		role    string
		members []*procs.Member
		flags   []string
	}{
		{"server", d.Servers[1:], []string{"--server", "--no-agent"}},
		{"agent", d.Agents, nil},
	} {
		file, err := d.token(ctx, step.role, len(step.members))
		if err != nil {
			return err
		}
		join := slices.Concat([]string{"join"}, step.flags, []string{"--token-file", file, first.Address})
		if err := d.begin(ctx, step.members, join...); err != nil {
			return err
		}
		if step.role == "agent" {
			break
		}
		// Until all three vote. Agents learn the addresses of the servers when they register.
		if err := d.show(ctx, 0, "server", "health", "--wait", "--timeout", "60s"); err != nil {
			return err
		}
	}
	d.say("(The members share this machine: so each also has --name, --advertise, --config, --data and --no-start.)")
	watched, cancel := whileRunning(ctx, d.Members()...)
	defer cancel()
	if err := d.waitEligible(watched); err != nil {
		return errors.Join(context.Cause(watched), err)
	}
	d.measured("cluster of 3 + 4 ready after", "%s", time.Since(began).Round(10*time.Millisecond))
	if err := d.show(ctx, 0, "node", "ls"); err != nil {
		return err
	}
	var nodes nodeList
	if err := d.Get(ctx, &nodes, "node", "ls"); err != nil {
		return err
	}
	for _, warning := range nodes.Items[0].Warnings { // all nodes have the same warnings, because they share a machine
		d.say("%s", warning)
	}
	return nil
}

// begin sets up members by a command, outspan up or outspan join, and starts them.
func (d *demo) begin(ctx context.Context, members []*procs.Member, command ...string) error {
	var names []string
	for _, m := range members {
		names = append(names, m.Name)
	}
	d.say("on %s $ outspan %s", strings.Join(names, ", "), strings.Join(command, " "))
	for _, m := range members {
		if err := d.SetUp(ctx, m, command...); err != nil {
			return err
		}
		if err := m.Start(); err != nil {
			return err
		}
	}
	return nil
}

// token has the first server make a join token, and returns the name of the file with it. It waits until the server
// answers.
func (d *demo) token(ctx context.Context, role string, uses int) (file string, err error) {
	first := d.Servers[0]
	ctx, cancel := whileRunning(ctx, first)
	defer cancel()
	command := []string{"token", "create", "--role", role, "--uses", strconv.Itoa(uses), "--format", "{{.text}}"}
	file = role + ".token"
	d.say("on %s $ outspan %s >%s", first.Name, strings.ReplaceAll(strings.Join(command, " "), "{{.text}}", "'{{.text}}'"),
		file)
	var words []string
	err = until(ctx, "a token of the role "+role, 30*time.Second, func() (bool, error) {
		out, code, err := d.Run(ctx, command...)
		if words = strings.Fields(out); err == nil && code != 0 {
			err = fmt.Errorf("exit code %d: %s", code, out)
		}
		return err == nil && len(words) > 0, err
	})
	if err != nil {
		return "", errors.Join(context.Cause(ctx), err)
	}
	token := words[len(words)-1] // after a note that the server had no CA yet
	return file, os.WriteFile(filepath.Join(d.Dir, file), []byte(token+"\n"), 0o600)
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
	for _, m := range d.Agents {
		targets = append(targets, d.service(m))
	}
	d.prober = newProber(targets)
	d.say("A prober sends 50 requests a second to port %d of the agents from now on.", d.port)
	return d.show(ctx, 0, "job", "status", "web")
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

func (d *demo) loseMachine(ctx context.Context) error {
	d.title("A machine dies: kill -9 of the agent n2 and of everything that it runs")
	victim := d.Agents[1]
	d.prober.avoid(d.service(victim))
	pause(ctx, 100*time.Millisecond) // so that open requests to n2 can finish
	before, began := d.prober.tally(), time.Now()
	d.KillAll(victim)
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
	d.measured("replacement: kill -9 of a machine -> all ready elsewhere", "%s",
		time.Since(began).Round(10*time.Millisecond))
	d.measured("failed requests while it was dead and not yet found", "%d of %d", after.failed-before.failed,
		after.sent-before.sent)
	return d.show(ctx, 0, "node", "ls")
}

func (d *demo) loseLeader(ctx context.Context) error {
	d.title("The leader dies in the middle of a drain")
	if err := d.show(ctx, 0, "node", "drain", "n3", "--detach", "--id", "tuesday"); err != nil {
		return err
	}
	var first drainView
	if err := d.Get(ctx, &first, "drain", "status", "tuesday"); err != nil {
		return err
	}
	leader, err := d.leader(ctx)
	if err != nil {
		return err
	}
	before, began := d.prober.tally(), time.Now()
	d.say("kill -9 of %s, the leader", leader.Name)
	leader.Kill()
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
	if err := d.Get(ctx, &last, "drain", "status", "tuesday"); err != nil {
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
	if err := leader.Start(); err != nil {
		return err
	}
	return d.onePerSlot(ctx)
}

func (d *demo) comeBack(ctx context.Context) error {
	d.title("The dead machine returns, and the drained one is used again")
	if err := d.Agents[1].Start(); err != nil {
		return err
	}
	if err := d.show(ctx, 0, "node", "uncordon", "n3"); err != nil {
		return err
	}
	if err := d.waitEligible(ctx); err != nil {
		return err
	}
	if err := d.waitReady(ctx); err != nil {
		return err
	}
	d.prober.use(d.service(d.Agents[1]))
	return d.show(ctx, 0, "job", "status", "web")
}

func (d *demo) loseServers(ctx context.Context) error {
	d.title("All servers die: what runs goes on, and is still there when they return")
	before, running := d.prober.tally(), d.allPIDs()
	for _, m := range d.Servers {
		d.say("kill -9 of %s", m.Name)
		m.Kill()
	}
	pause(ctx, 4*time.Second) // twice the sandbox's offline_after
	for _, m := range d.Servers {
		if err := m.Start(); err != nil {
			return err
		}
	}
	if err := errors.Join(d.waitEligible(ctx), d.waitReady(ctx)); err != nil {
		return err
	}
	after := d.prober.tally()
	d.measured("failed requests while no server ran", "%d of %d", after.failed-before.failed, after.sent-before.sent)
	if after.failed != before.failed {
		return fmt.Errorf("%d requests failed while no server ran; the last: %s", after.failed-before.failed, after.last)
	}
	if now := d.allPIDs(); !slices.Equal(now, running) {
		return fmt.Errorf("the processes of instances were %v and are %v", running, now)
	}
	d.measured("processes that ended or began meanwhile", "0 of %d", len(running))
	d.measured("requests in all, failed", "%d, %d", after.sent, after.failed)
	return nil
}
