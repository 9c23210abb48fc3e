package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// rollFlags are the flags of node roll.
type rollFlags struct {
	dryRun     bool
	selector   string
	exec       string
	waitReboot bool
	noReboot   bool
	resume     string
	parallel   int
	given      func(flag string) bool // reports whether the user gave a flag
	deadline   term.DurationFlag
	within     time.Duration
	message    string
}

func (f *rollFlags) register(cmd *cobra.Command) {
	fs := cmd.Flags()
	f.given = fs.Changed
	fs.BoolVar(&f.dryRun, "dry-run", false,
		"forecast every node in sequence, change nothing; exit code 21 if one of them could not be drained")
	fs.StringVar(&f.selector, "selector", "", "instead of names: all nodes with these labels, k=v,...")
	fs.StringVar(&f.exec, "exec", "",
		"what reboots a node, run by sh on this machine, such as 'ssh {node} reboot || true'; {node} is its name, "+
			"OUTSPAN_NODE and OUTSPAN_NODE_ADDRESS are set")
	fs.BoolVar(&f.waitReboot, "wait-reboot", false, "wait until a person has rebooted each node")
	fs.BoolVar(&f.noReboot, "no-reboot", false,
		"the command of --exec reboots nothing, such as an update of packages: the node is taken back when it has ended; "+
			"with --resume, --no-reboot=false takes that back")
	fs.StringVar(&f.resume, "resume", "",
		"go on with the roll of this id, from any machine; repeat --exec for a roll that somebody else began")
	fs.IntVar(&f.parallel, "max-parallel-nodes", 1, "how many nodes at once")
	f.deadline.Value = new(model.Duration)
	fs.Var(&f.deadline, "deadline",
		"of each drain: 1h, or none (default: the setting drain_deadline; with --resume, as before)")
	fs.DurationVar(&f.within, "within", 30*time.Minute,
		"how long a node may take to come back, and its groups to be whole again")
	fs.StringVarP(&f.message, "message", "m", "", "why, for people")
}

func nodeRoll(a *app) *cobra.Command {
	var f rollFlags
	cmd := &cobra.Command{
		Use: "roll [NODE...]", Short: "maintenance of many machines: drain, reboot, take back, the next",
		ValidArgsFunction: a.complete("nodes"),
		Long: `For each node in turn: drain it, run the command (or wait for a person), wait until it is back with a new boot id (with --no-reboot: until the
command has ended), uncordon it, and wait until the groups that it had are whole again. The first failure stops it. What it has done stands in its drains: it can be resumed from any
machine, after Ctrl-C too.

Exit codes: 0 every node is done; 21 (with --dry-run) a node could not be drained; 22 a drain failed; 1 the command failed, or a node did not come back.`,
		Example: "outspan node roll --selector rack=r1 --dry-run\noutspan node roll n1 n2 n3 --exec 'ssh {node} reboot || " +
			"true'\noutspan node roll n1 n2 --exec 'ssh {node} apt-get -y upgrade' --no-reboot\n" +
			"outspan node roll --wait-reboot --selector os=debian12 -m 'new kernel'\n" +
			"outspan node roll --resume 01JDC8Y7VQ4M2N6S1T0K9H3RFW",
		RunE: func(cmd *cobra.Command, args []string) error { return a.rollNodes(cmd.Context(), args, &f) },
	}
	f.register(cmd)
	return cmd
}

func (a *app) rollNodes(ctx context.Context, nodes []string, f *rollFlags) error {
	if f.resume != "" {
		if len(nodes) > 0 || f.selector != "" {
			return term.Usage("--resume goes on with the nodes of the roll").WithHint("leave nodes and --selector out")
		}
		return a.resumeRoll(ctx, f)
	}
	names, err := a.rolledNodes(ctx, nodes, f)
	switch {
	case err != nil:
		return err
	case f.dryRun:
		return a.forecastRoll(ctx, names)
	case (f.exec == "") == !f.waitReboot:
		return term.Usage("say what reboots a node: --exec 'CMD {node}', or --wait-reboot").
			WithHint("see what would happen with --dry-run")
	case f.noReboot && f.exec == "":
		return term.Usage("--no-reboot needs --exec").
			WithHint("say what is to be done on each node: --exec 'CMD {node}' --no-reboot")
	}
	if err := f.checkParallel(); err != nil {
		return err
	}
	return a.runRoll(ctx,
		&roll{plan: model.Roll{ID: ulid.Make().String(), Nodes: names, Exec: f.exec, Parallel: f.parallel,
			NoReboot: f.noReboot}, flags: f})
}

func (f *rollFlags) checkParallel() error {
	if f.parallel < 1 {
		return term.Usage("--max-parallel-nodes is %d; it must be at least 1", f.parallel)
	}
	return nil
}

// rolledNodes returns the names of the nodes to roll: the nodes in refs in the same order, or the nodes with the labels
// of --selector, sorted by name. Each ref must be a whole name or id.
func (a *app) rolledNodes(ctx context.Context, refs []string, f *rollFlags) ([]string, error) {
	labels, err := parseLabels(f.selector)
	switch {
	case err != nil:
		return nil, err
	case len(refs) == 0 && len(labels) == 0:
		return nil, term.Usage("no node is given").WithHint("write: outspan node roll NODE..., or --selector k=v")
	case len(refs) > 0 && len(labels) > 0:
		return nil, term.Usage("nodes and --selector are both given").WithHint("give one of them")
	}
	var names []string
	for _, ref := range refs {
		got, err := a.client().Nodes.Get(ctx, ref, client.ReadOptions{})
		if err != nil {
			return nil, err
		}
		n := &got.Value
		if ref != n.Name && ref != string(n.ID) {
			return nil, model.NoSuch("node", ref, []string{n.Name}) // Get also accepts a prefix of a name
		}
		if !slices.Contains(names, n.Name) {
			names = append(names, n.Name)
		}
	}
	if len(labels) == 0 {
		return names, nil
	}
	known, err := a.client().Nodes.List(ctx, client.ListOptions{})
	if err != nil {
		return nil, err
	}
	if names = orderNodes(known.Items, nil, labels, "name"); len(names) == 0 {
		return nil, model.Refuse(model.CodeNotFound, "no node has these labels").
			WithHint("list them with: outspan node ls -o wide")
	}
	return names, nil
}

// rollForecast is what the drain of one node of a roll would do if it began now.
type rollForecast struct {
	Node       string               `json:"node"`
	Forecast   []api.DrainForecast  `json:"forecast"`
	Rejected   []model.DrainRefusal `json:"rejected"`
	FreeMemory int64                `json:"free_memory_bytes"` // left on the other nodes if they take over its instances
	Stuck      bool                 `json:"stuck"`             // the drain would be refused, or can't complete on its own
}

// forecastRoll shows for each node what its drain would do, and how much memory the other nodes would have left. It
// returns an error with exit code 21 if one of the drains is stuck.
func (a *app) forecastRoll(ctx context.Context, names []string) error {
	known, err := a.client().Nodes.List(ctx, client.ListOptions{})
	if err != nil {
		return err
	}
	stuck := false
	all := make([]rollForecast, 0, len(names))
	for _, name := range names {
		got, err := a.client().Drains.Start(ctx, api.DrainBody{Nodes: []string{name}}, client.WriteOptions{DryRun: true})
		if err != nil {
			return err
		}
		one := rollForecast{Node: name, Forecast: got.Value.Forecast, Rejected: got.Value.Rejected,
			FreeMemory: freeWithout(known.Items, name)}
		one.Stuck = stuckForecast(got.Value) != nil || len(one.Rejected) > 0
		stuck = stuck || one.Stuck
		all = append(all, one)
	}
	s, err := term.ResultOf(map[string]any{"items": all, "index": known.Index}, names, func(p *term.Page) {
		rollForecastTable(p, all)
	})
	if err != nil {
		return err
	}
	if err := a.Show(s); err != nil || !stuck {
		return err
	}
	return term.Quiet{Code: term.ExitNotAllPlaced}
}

// freeWithout returns how much memory the other eligible nodes would have left if they took all instances of one node.
// The result is negative if they have too little.
func freeWithout(nodes []api.Node, name string) int64 {
	free := int64(0)
	for _, n := range nodes {
		switch {
		case n.Name == name:
			free -= n.Allocated.MemoryBytes
		case n.Eligible:
			free += n.Capacity.MemoryBytes - n.Reserved.MemoryBytes - n.Allocated.MemoryBytes
		}
	}
	return free
}

func rollForecastTable(p *term.Page, all []rollForecast) {
	count := func(f rollForecast, actions ...model.Action) string {
		n := 0
		for _, one := range f.Forecast {
			if slices.Contains(actions, one.Action) {
				n++
			}
		}
		return fmt.Sprint(n)
	}
	term.Rows(p, all, []term.Column[rollForecast]{
		{Head: "node", Cell: func(f rollForecast) string { return f.Node }},
		{Head: "move", Cell: func(f rollForecast) string { return count(f, model.ActionMove, model.ActionStopFirst) }},
		{Head: "stop", Cell: func(f rollForecast) string { return count(f, model.ActionStop) }},
		{Head: "stay", Cell: func(f rollForecast) string { return count(f, model.ActionLeave) }},
		{Head: "blocked", Cell: func(f rollForecast) string { return count(f, model.ActionWait) }},
		{Head: "room left meanwhile", Cell: func(f rollForecast) string { return model.SizeText(f.FreeMemory) }},
		{Head: "can finish", Cell: func(f rollForecast) string { return term.YesNo(!f.Stuck) }},
	})
	for _, f := range all {
		for _, one := range f.Rejected {
			p.Line("  %s: %s (%s)", f.Node, one.Message, one.Code)
		}
		for _, sum := range sumsOf(blockersOf(f.Forecast)) {
			p.Line("  %s: %s", f.Node, sumText(sum))
		}
	}
	p.Line("(dry run: nothing was changed)")
}

// movedGroups returns the groups in which an instance was created because of a draining node since the drain was
// created. The node may be one of another drain.
func (a *app) movedGroups(ctx context.Context, drain *api.Drain) (map[model.GroupID]bool, error) {
	all, err := a.client().Instances.List(ctx, client.InstanceListOptions{})
	if err != nil {
		return nil, err
	}
	moved := map[model.GroupID]bool{}
	for _, i := range all.Items {
		if i.Cause == model.CauseNodeDraining && !i.CreatedAt.Before(drain.CreatedAt) {
			moved[model.NewGroupID(i.Job, i.Group)] = true
		}
	}
	return moved, nil
}

// lackingGroup returns the id of a group that has fewer ready instances than its count, or "" if there is none. It only
// considers groups for which the map is true.
func lackingGroup(jobs []api.Job, of map[model.GroupID]bool) string {
	for _, j := range jobs {
		for _, g := range j.Groups {
			if id := model.NewGroupID(j.Name, g.Name); of[id] && g.Ready < g.Count {
				return string(id)
			}
		}
	}
	return ""
}

// within runs f with a context that expires after limit. A limit of 0 means that it does not expire.
func (a *app) within(ctx context.Context, limit time.Duration, f func(context.Context) error) error {
	if limit <= 0 {
		return f(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return f(ctx)
}

// hiddenWord is what servers show in place of what the caller may not read.
const hiddenWord = "hidden"

// resumeRoll continues an earlier roll with the same nodes. Of the other options, those that are given replace the
// roll's own; --wait-reboot replaces its command and --no-reboot. With --dry-run, resumeRoll only forecasts.
func (a *app) resumeRoll(ctx context.Context, f *rollFlags) error {
	found, err := a.drainsOfRoll(ctx, f.resume)
	if err != nil {
		return err
	}
	for _, d := range found.others {
		a.Note("warning: drain %s of %q has the id of this roll, but other nodes; it is ignored", d.ID, string(d.Actor))
	}
	got, err := a.client().Auth.WhoAmI(ctx, client.ReadOptions{})
	if err != nil {
		return err
	}
	me := model.Actor(got.Value.Subject)
	from := found.source(me)
	r := &roll{plan: *from.Options.Roll, flags: f}
	switch {
	case r.plan.Exec == hiddenWord || slices.Contains(r.plan.Nodes, hiddenWord):
		return term.Usage("you may not see all of this roll").
			WithHint("ask for the right to drain all of its nodes, or begin a roll of your own: outspan node roll NODE...")
	case f.exec != "" && f.waitReboot:
		return term.Usage("--exec and --wait-reboot are both given").WithHint("give one of them")
	case f.noReboot && (f.waitReboot || term.First(f.exec, r.plan.Exec) == ""):
		return term.Usage("--no-reboot needs a command").
			WithHint("say what is to be done on each node: --exec 'CMD {node}' --no-reboot")
	case r.plan.Exec != "" && f.exec == "" && !f.waitReboot && !f.dryRun && from.Actor != me:
		return term.Usage("the command of this roll is from %q: %q", string(from.Actor), r.plan.Exec).
			WithHint("read it; if you want to run it here, repeat it: outspan node roll --resume %s --exec '...'", f.resume)
	}
	if f.exec != "" || f.waitReboot {
		r.plan.Exec = f.exec
	}
	f.message = cmp.Or(f.message, from.Message)
	if !f.deadline.Given {
		f.deadline.Value, f.deadline.Given = &from.Options.Deadline, true
	}
	if f.given("no-reboot") || f.waitReboot {
		r.plan.NoReboot = f.noReboot
	}
	if f.given("max-parallel-nodes") {
		if err := f.checkParallel(); err != nil {
			return err
		}
		r.plan.Parallel = f.parallel
	}
	if f.dryRun {
		return a.forecastRoll(ctx, r.plan.Nodes)
	}
	return a.runRoll(ctx, r)
}

// rollDrains are the drains with the id of one roll, each list the latest first. The first drain of the roll says which
// nodes it has. Drains with other nodes are no steps of it: anybody who may drain a node can write any id into a drain.
type rollDrains struct {
	steps, others []api.Drain
}

// source returns the drain from which a caller resumes the roll: the latest step of its own, or that of whoever began
// the roll.
func (r rollDrains) source(me model.Actor) *api.Drain {
	owner := r.steps[len(r.steps)-1].Actor
	for _, actor := range []model.Actor{me, owner} {
		for i := range r.steps {
			if r.steps[i].Actor == actor {
				return &r.steps[i]
			}
		}
	}
	return nil // never: the first step is the owner's
}

// drainsOfRoll returns the drains of a roll. Code: not_found if there is none.
func (a *app) drainsOfRoll(ctx context.Context, id string) (found rollDrains, _ error) {
	all, err := a.client().Drains.List(ctx, client.ListOptions{})
	if err != nil {
		return found, err
	}
	same := slices.DeleteFunc(all.Items, func(d api.Drain) bool {
		return d.Options.Roll == nil || d.Options.Roll.ID != id
	})
	if len(same) == 0 {
		return found, model.Refuse(model.CodeNotFound, "no drain is a step of a roll %q", id).
			WithHint("give its whole id; list drains with: outspan drain ls -o wide")
	}
	slices.SortFunc(same, func(x, y api.Drain) int { return cmp.Compare(y.Index, x.Index) })
	nodes := same[len(same)-1].Options.Roll.Nodes
	for _, d := range same {
		if slices.Equal(d.Options.Roll.Nodes, nodes) {
			found.steps = append(found.steps, d)
		} else {
			found.others = append(found.others, d)
		}
	}
	return found, nil
}
