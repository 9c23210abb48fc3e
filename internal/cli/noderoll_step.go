package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// Codes of failures in a roll.
const (
	codeCommandFailed model.Code = "command_failed"
	codeNotReturned   model.Code = "node_not_returned"
)

// roll is one rolling maintenance that this process carries out. The drains of the roll record its progress, so another
// process can resume it.
type roll struct {
	plan  model.Roll
	flags *rollFlags

	console *term.Console
	mu      sync.Mutex
	p       *term.Progress
	took    []time.Duration // how long the nodes took that this process finished
	steps   []rollStep
}

// rollStep is the progress of one node.
type rollStep struct {
	Node    string        `json:"node"`
	State   string        `json:"state"` // pending (also while in progress), done or failed
	Drain   model.DrainID `json:"drain"`
	Seconds float64       `json:"seconds"`
	Error   string        `json:"error,omitempty"`
}

func (r *roll) say(node, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := node + ": " + fmt.Sprintf(format, args...)
	if r.console.Output.Machine() {
		r.console.Note("%s", text)
		return
	}
	r.p.Line("%s", text)
}

// set records the progress of the node at index i. If took is 0, left does not use it for its estimate.
func (r *roll) set(i int, state string, drain model.DrainID, took time.Duration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	step := &r.steps[i]
	step.State, step.Drain, step.Seconds = state, drain, took.Seconds()
	if err != nil {
		step.Error = err.Error()
	}
	if state == "done" && took > 0 {
		r.took = append(r.took, took)
	}
}

// left describes how many nodes are done and how many have failed, and estimates the time for the nodes that have not
// begun or are in progress.
func (r *roll) left() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	total, in := time.Duration(0), map[string]int{}
	for _, s := range r.steps {
		in[s.State]++
	}
	for _, d := range r.took {
		total += d
	}
	pending := in["pending"]
	text := fmt.Sprintf("%d of %d done", in["done"], len(r.steps))
	if in["failed"] > 0 {
		text += fmt.Sprintf(", %d failed", in["failed"])
	}
	if pending > 0 && len(r.took) > 0 {
		rest := total / time.Duration(len(r.took)) * time.Duration(pending) / time.Duration(max(r.plan.Parallel, 1))
		text += ", about " + term.Span(rest) + " left"
	}
	return text
}

// runRoll does the maintenance of the nodes in order, up to plan.Parallel at once, until one fails, and prints the
// result. After a failure, people see how to resume the roll instead of the result.
func (a *app) runRoll(ctx context.Context, r *roll) error {
	r.console, r.p = &a.Console, term.NewProgress(&a.Console)
	r.steps = make([]rollStep, len(r.plan.Nodes))
	for i, node := range r.plan.Nodes {
		r.steps[i] = rollStep{Node: node, State: "pending"}
	}
	r.say("roll "+r.plan.ID, "%s", term.Joined(r.plan.Nodes))
	err := a.rollAll(ctx, r)
	if err != nil {
		a.Note("roll %s has stopped: %s\n  go on with: outspan node roll --resume %s", r.plan.ID, r.left(), r.plan.ID)
	}
	s, failed := term.ResultOf(map[string]any{"roll": r.plan.ID, "nodes": r.steps}, r.plan.Nodes, func(p *term.Page) {
		p.Line("roll %s: %s", r.plan.ID, r.left())
	})
	if failed == nil && (err == nil || a.Output.Machine()) {
		failed = a.Show(s)
	}
	return cmp.Or(err, failed)
}

// rollAll does the maintenance of all nodes. After a failure, or when ctx ends, it starts no further node and waits for
// the nodes in progress. It returns the first error, or why ctx ended.
func (a *app) rollAll(ctx context.Context, r *roll) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var workers sync.WaitGroup
	next := make(chan int)
	failed := make(chan error, len(r.steps))
	stopping := make(chan struct{})
	var once sync.Once
	for range min(max(r.plan.Parallel, 1), len(r.steps)) {
		workers.Go(func() {
			for i := range next {
				if err := a.rollOne(ctx, r, i); err != nil {
					failed <- err
					once.Do(func() { close(stopping) })
				}
			}
		})
	}
	for i := range r.steps {
		select {
		case next <- i:
			continue
		case <-stopping:
		case <-ctx.Done():
		}
		break
	}
	close(next)
	workers.Wait()
	select {
	case err := <-failed:
		return err
	default:
		return context.Cause(ctx)
	}
}

// rollOne does the maintenance of one node, or continues it, and records the outcome.
func (a *app) rollOne(ctx context.Context, r *roll, i int) error {
	began, node := a.Now(), r.plan.Nodes[i]
	drain, err := a.rollDrain(ctx, r, i)
	if err == nil && drain != nil {
		err = a.rollReturn(ctx, r, node, drain)
	}
	if err != nil {
		r.set(i, "failed", drainOf(drain), a.Now().Sub(began), err)
		return err
	}
	took := a.Now().Sub(began)
	if drain == nil {
		took = 0 // the node was complete before this process began
	}
	r.set(i, "done", drainOf(drain), took, nil)
	r.say(node, "done; %s", r.left())
	return nil
}

func drainOf(d *api.Drain) model.DrainID {
	if d == nil {
		return ""
	}
	return d.ID
}

// rollDrain drains the node, or follows the drain that this roll has already started for it. If that drain failed or
// was canceled, or if the node was put back into use before it was rebooted, rollDrain starts another drain. If the
// maintenance of the node is complete, it returns no drain.
func (a *app) rollDrain(ctx context.Context, r *roll, i int) (*api.Drain, error) {
	name := r.plan.Nodes[i]
	got, err := a.client().Nodes.Get(ctx, name, client.ReadOptions{})
	if err != nil {
		return nil, err
	}
	last, attempt, err := a.lastDrain(ctx, r, name)
	switch {
	case err != nil:
		return nil, err
	case last == nil || last.Phase == model.PhaseFailed || last.Phase == model.PhaseCanceled:
	case last.Phase == model.PhaseDrained &&
		(got.Value.Intent != model.IntentDraining || inOtherDrain(got.Value, last.ID)):
		if r.plan.NoReboot || got.Value.BootID != bootBefore(last, name) {
			return nil, nil
		}
		if inOtherDrain(got.Value, last.ID) {
			return nil, refuseOtherDrain(got.Value)
		}
		r.say(name, "was taken back before it was rebooted: it is drained again")
	default:
		return a.followRoll(ctx, r, name, last.ID)
	}
	body := api.DrainBody{Nodes: []string{name}}
	body.ID = model.DrainID(fmt.Sprintf("%s.%d.%d", r.plan.ID, i+1, attempt+1))
	body.Message, body.Roll = term.First(r.flags.message, "node roll "+r.plan.ID), &r.plan
	if r.flags.deadline.Given {
		body.Deadline = r.flags.deadline.Value
	}
	// Each attempt is a request of its own, because the servers keep a refusal under its id. The drain's id is enough to
	// start the drain only once.
	if _, err := a.client().Drains.Start(ctx, body, client.WriteOptions{}); err != nil {
		return nil, err
	}
	return a.followRoll(ctx, r, name, body.ID)
}

// inOtherDrain reports whether a node is drained by another drain than the given one. Taking the node back would cancel
// that other drain.
func inOtherDrain(n api.Node, drain model.DrainID) bool {
	return n.Intent == model.IntentDraining && n.DrainID != drain
}

func refuseOtherDrain(n api.Node) error {
	return model.Refuse(model.CodeConflict, "node %s is in another drain: %s", n.Name, n.DrainID)
}

// lastDrain returns the latest drain of a node in this roll, or nil if there is none. It also returns how many drains
// the node had in this roll.
func (a *app) lastDrain(ctx context.Context, r *roll, name string) (*api.Drain, int, error) {
	found, err := a.drainsOfRoll(ctx, r.plan.ID)
	if isCode(err, model.CodeNotFound) {
		return nil, 0, nil
	}
	all := slices.DeleteFunc(found.steps, func(d api.Drain) bool {
		return !slices.ContainsFunc(d.Nodes, func(n api.DrainNode) bool { return n.Node == name })
	})
	if err != nil || len(all) == 0 {
		return nil, 0, err
	}
	return &all[0], len(all), nil
}

func (a *app) followRoll(ctx context.Context, r *roll, name string, id model.DrainID) (*api.Drain, error) {
	say := func(format string, args ...any) {
		line := strings.TrimPrefix(fmt.Sprintf(format, args...), name+": ")
		r.say(name, "%s", line)
	}
	last, err := a.watchDrain(ctx, string(id), &waitFlags{}, say)
	return last, err
}

// bootBefore returns the boot id that a node had when its drain began.
func bootBefore(drain *api.Drain, name string) string {
	for _, n := range drain.Nodes {
		if n.Node == name {
			return n.BootID
		}
	}
	return ""
}

// rollReturn does the work on a drained node: the command of --exec, or a reboot by a person. It skips the work if the
// node has been rebooted since its drain began, unless the roll has NoReboot. Then it waits until the node is back,
// uncordons it, and waits until the groups that the drain moved are complete again.
func (a *app) rollReturn(ctx context.Context, r *roll, name string, drain *api.Drain) error {
	before := bootBefore(drain, name)
	got, err := a.client().Nodes.Get(ctx, name, client.ReadOptions{})
	if err != nil {
		return err
	}
	if r.plan.NoReboot || got.Value.BootID == before { // a different boot id means that the node has been rebooted
		if err := a.reboot(ctx, r, got.Value); err != nil {
			return err
		}
	}
	if err := a.awaitBack(ctx, r, name, before); err != nil {
		return err
	}
	if got, err = a.client().Nodes.Get(ctx, name, client.ReadOptions{}); err != nil {
		return err
	}
	if inOtherDrain(got.Value, drain.ID) {
		return refuseOtherDrain(got.Value)
	}
	if _, err := a.client().Nodes.Uncordon(ctx, name, api.IntentBody{Reason: "node roll " + r.plan.ID},
		client.WriteOptions{}); err != nil {
		return err
	}
	if err := a.awaitNode(ctx, name, r.flags.within, "it does not take instances again", func(n api.Node) bool {
		return n.Eligible
	}); err != nil {
		return err
	}
	return a.awaitWhole(ctx, r, name, drain)
}

// awaitBack waits until a node is online and, unless the roll has NoReboot, has a boot id other than bootBefore. If a
// person reboots the node, there is no time limit.
func (a *app) awaitBack(ctx context.Context, r *roll, name, bootBefore string) error {
	if r.plan.NoReboot {
		return a.awaitNode(ctx, name, r.flags.within, "it is not online", func(n api.Node) bool {
			return n.Health == model.HealthOnline
		})
	}
	limit := r.flags.within
	if r.plan.Exec == "" {
		limit = 0 // a person may take any amount of time
	}
	err := a.awaitNode(ctx, name, limit, "it is not back with a new boot id", func(n api.Node) bool {
		return n.BootID != bootBefore && n.Health == model.HealthOnline
	})
	if isCode(err, codeNotReturned) {
		return model.Refuse(codeNotReturned, "%s", describe(err).Message).
			WithHint("look at the machine; see: outspan node status %s; if the command reboots nothing, go on with --no-reboot",
				name)
	}
	if err == nil {
		r.say(name, "is back with a new boot id")
	}
	return err
}

// reboot runs the command of --exec for the node. Without a command it asks a person to reboot the node, and returns at
// once.
func (a *app) reboot(ctx context.Context, r *roll, n api.Node) error {
	if r.plan.Exec == "" {
		r.say(n.Name, "is drained: reboot it now; waiting for it to come back")
		return nil
	}
	text := strings.ReplaceAll(r.plan.Exec, "{node}", n.Name)
	r.say(n.Name, "running: %s", text)
	limited, cancel := context.WithTimeout(ctx, r.flags.within)
	defer cancel()
	cmd := exec.CommandContext(limited, "/bin/sh", "-c", text)
	cmd.WaitDelay = 5 * time.Second
	cmd.Env = append(os.Environ(), "OUTSPAN_NODE="+n.Name, "OUTSPAN_NODE_ADDRESS="+n.Address)
	cmd.Stdout, cmd.Stderr = a.Err, a.Err
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return model.Refuse(codeCommandFailed, "node %s: the command failed: %v", n.Name, err).
			WithHint("where a reboot cuts its own connection, let the command end with: || true")
	}
	return nil
}

// awaitNode reads a node until the callback returns true for it. A limit of 0 means no time limit. When the limit has
// passed, awaitNode returns an error (node_not_returned) that contains the text otherwise.
func (a *app) awaitNode(ctx context.Context, name string, limit time.Duration, otherwise string,
	is func(api.Node) bool) error {
	err := a.within(ctx, limit, func(ctx context.Context) error {
		return watchEvery(ctx, a, of(a.client().Nodes.Get, name), time.Second,
			func(got client.Response[api.Node]) (bool, error) { return is(got.Value), nil })
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return model.Refuse(codeNotReturned, "node %s: %s after %s", name, otherwise, limit).
			WithHint("look at the machine; see: outspan node status %s", name)
	}
	return err
}

// awaitWhole waits until each group that movedGroups returns has as many ready instances as its count.
func (a *app) awaitWhole(ctx context.Context, r *roll, name string, drain *api.Drain) error {
	moved, err := a.movedGroups(ctx, drain)
	if err != nil || len(moved) == 0 {
		return err
	}
	lacking := ""
	err = a.within(ctx, r.flags.within, func(ctx context.Context) error {
		for {
			jobs, err := a.client().Jobs.List(ctx, client.ListOptions{})
			if err != nil && exitOf(err) != term.ExitTransient {
				return err
			}
			if lacking = lackingGroup(jobs.Items, moved); err == nil && lacking == "" {
				return nil
			}
			if !wait(ctx, 250*time.Millisecond) {
				return context.Cause(ctx)
			}
		}
	})
	if errors.Is(err, context.DeadlineExceeded) {
		return model.Refuse(codeNotReturned, "group %s is not whole again %s after node %s came back",
			lacking, r.flags.within, name).
			WithHint("see why: outspan why %s", lacking)
	}
	return err
}
