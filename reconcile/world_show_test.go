package reconcile_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
)

// cmdRun submits a job with one or more groups, for example: run web http count=3 memory=1GiB ; db volume=data
func (w *world) cmdRun(args []string) string {
	spec := w.parseJob(args)
	w.specs[spec.Name] = spec
	return w.must(w.apply("cli:ann", &fsm.JobSubmit{Spec: spec}))
}

func (w *world) parseJob(args []string) model.JobSpec {
	spec := model.JobSpec{Name: model.JobName(args[0])}
	for _, text := range strings.Split(strings.Join(args[1:], " "), ";") {
		words := strings.Fields(text)
		// With the default overhead of 64 MiB, an instance needs 100 MiB.
		g := model.GroupSpec{Name: words[0], Count: 1, Exec: model.ExecSpec{Command: "/bin/app"},
			Resources: model.Resources{MemoryBytes: 36 << 20}}
		for _, word := range words[1:] {
			key, value, _ := strings.Cut(word, "=")
			if key == "class" {
				spec.Class = model.ClassName(value)
				continue
			}
			w.groupKey(&g, key, value)
		}
		spec.Groups = append(spec.Groups, g)
	}
	return spec
}

func (w *world) groupKey(g *model.GroupSpec, key, value string) {
	a, b, _ := strings.Cut(value, ":")
	switch key {
	case "count":
		g.Count = number(value)
	case "memory":
		g.Resources.MemoryBytes = size(value)
	case "cpu":
		g.Resources.CPU = int64(number(value))
	case "image":
		g.Exec, g.Container = model.ExecSpec{}, &model.ContainerSpec{Image: fmt.Sprintf("%s@sha256:%064x", value, value)}
	case "network":
		g.Container.Network = model.ContainerNetwork(value)
	case "platforms":
		g.Container.Platforms = strings.Split(value, ",")
	case "cmd":
		g.Exec.Args = []string{value}
	case "service":
		g.Services = append(g.Services, model.ServiceSpec{Name: a, Port: b})
	case "expose": // expose=8080 exposes the service of the last key service
		g.Services[len(g.Services)-1].Expose = number(value)
	case "port":
		p := model.PortSpec{Name: a}
		if b != "" {
			p.Static = number(b)
		}
		g.Ports = append(g.Ports, p)
	case "volume":
		v := model.VolumeSpec{Name: a, Kind: model.VolumeLocal, Path: "/" + a}
		if b != "" { // volume=data:replicated
			v.Kind, g.RoleCheck = model.VolumeKind(b), &model.RoleCheckSpec{Exec: []string{"/bin/facts"}}
		}
		g.Volumes = append(g.Volumes, v)
	case "exclusive":
		g.Exclusive = &model.ExclusiveSpec{}
		if value != "" { // exclusive=10s
			g.Exclusive.Lease = duration(value)
		}
	case "grace":
		g.Stop.Grace = duration(value)
	case "order":
		g.Eviction.Order = model.Order(value)
	case "wait":
		g.Eviction.SurgeWait = model.SurgeWait(value)
	case "evict":
		g.Eviction.Mode = model.Mode(value)
	case "replace":
		g.Replacement.Mode = model.Mode(value)
	case "unreachable":
		d := duration(value)
		g.Toleration.Unreachable = &d
	case "not_ready":
		d := duration(value)
		g.Toleration.NotReady = &d
	case "reschedule":
		attempts, interval, _ := strings.Cut(value, "/")
		g.Reschedule = model.RetrySpec{Attempts: number(attempts), Interval: duration(interval)}
	case "constraint":
		op, val, _ := strings.Cut(b, ":")
		g.Constraints = append(g.Constraints, model.Constraint{Attribute: a, Operator: op, Value: val})
	case "affinity":
		val, weight, _ := strings.Cut(b, ":")
		g.Affinities = append(g.Affinities,
			model.Affinity{Constraint: model.Constraint{Attribute: a, Value: val}, Weight: number(weight)})
	case "spread":
		g.Spreads = append(g.Spreads, model.Spread{Attribute: value})
	case "distinct":
		g.Distinct = append(g.Distinct, value)
	case "surge":
		g.Update.MaxSurge = number(value)
	case "unavailable":
		g.Update.MaxUnavailable = number(value)
	case "min_healthy":
		g.Update.MinHealthy = duration(value)
	case "update_order":
		g.Update.Order = model.Order(value)
	case "deadline":
		g.Update.Deadline = duration(value)
	case "canary":
		g.Update.Canary = number(value)
	case "auto_revert":
		g.Update.AutoRevert = true
	case "min_ready", "max_down", "rate", "blocking":
		w.budgetKey(g, key, value)
	case "budget":
		for _, name := range strings.Split(value, ",") {
			g.Budgets = append(g.Budgets, model.BudgetName(name))
		}
	default:
		if !w.roleKey(g, key, value) {
			w.t.Fatalf("%s: no such key: %s", w.at, key)
		}
	}
}

func (w *world) budgetKey(g *model.GroupSpec, key, value string) {
	if g.Budget == nil {
		g.Budget = &model.BudgetSpec{}
	}
	switch key {
	case "min_ready":
		g.Budget.MinReady = amount(value)
	case "max_down":
		g.Budget.MaxDown = amount(value)
	case "blocking":
		g.Budget.Blocking = true
	case "rate":
		n, window, _ := strings.Cut(value, "/")
		g.Budget.Rate = &model.RateSpec{Max: number(n), Window: duration(window)}
	}
}

// cmdShow prints rows of one kind, such as show nodes or show instances n1.
func (w *world) cmdShow(args []string) string {
	var out strings.Builder
	switch args[0] {
	case "instances":
		var lines []string
		for _, inst := range w.state.Instances.All() {
			if !inst.Terminal() && (len(args) == 1 || inst.Node == model.NodeID(args[1])) {
				lines = append(lines, w.instanceLine(inst))
			}
		}
		slices.Sort(lines)
		out.WriteString(strings.Join(lines, ""))
	case "nodes":
		for _, n := range w.state.Nodes.All() {
			fmt.Fprintf(&out, "%s %s, %d instances, %d MiB\n", n.Name, n.State(), n.Placed.Instances, n.Placed.MemoryBytes>>20)
		}
	case "drains":
		for _, d := range w.state.Drains.All() {
			for _, n := range d.Nodes {
				line := fmt.Sprintf("%s %s %s, %d moved: %s", d.ID, n.Node, n.Phase, n.Moved, w.words(n.LastError))
				if n.Acked > 0 {
					line = fmt.Sprintf("%s %s %s, %d moved, %d stay", d.ID, n.Node, n.Phase, n.Moved, n.Acked)
				}
				if len(args) > 1 { // show drains unreplaced
					line = fmt.Sprintf("%s %s %s, %d moved, %d of them without a replacement", d.ID, n.Node,
						n.Phase, n.Moved, n.Unreplaced)
				}
				fmt.Fprintln(&out, strings.TrimSuffix(line, ": "))
			}
		}
	case "deployments":
		for _, d := range w.state.Deployments.All() {
			fmt.Fprintln(&out, strings.TrimSuffix(fmt.Sprintf("%s %s: %s", d.ID, d.Status, w.words(d.Reason)), ": "))
		}
	case "jobs":
		for _, j := range w.state.Jobs.All() {
			fmt.Fprintf(&out, "%s version %d, stable %d\n", j.Name, j.Version, j.Stable)
		}
	case "groups":
		for _, g := range w.state.Groups.All() {
			fmt.Fprintf(&out, "%s count %d, ready %d, running %d, alive %d, version %d, min ready %d\n", g.ID, g.Count, g.Ready,
				g.Running, g.Alive, g.Version, g.Budget.MinReady)
		}
	case "hold":
		fmt.Fprintln(&out, strings.TrimSuffix(fmt.Sprintf("hold %t: %s", w.state.Hold.Active, w.state.Hold.Reason), ": "))
	case "services":
		for name, svc := range w.state.Services.All() {
			fmt.Fprintf(&out, "%s generation %d:", name, svc.Generation)
			for inst := range w.state.InstancesOf(svc.Group) {
				if n, _ := w.state.Nodes.Get(inst.Node); inst.Ready() && n.Health != model.HealthOffline {
					fmt.Fprintf(&out, " %s", w.names[inst.ID])
				}
			}
			out.WriteString("\n")
		}
	case "addresses":
		out.WriteString(w.showAddresses())
	case "held":
		out.WriteString(w.showHeld())
	case "spread": // how many instances should run on each node
		count := map[model.NodeID]int{}
		for _, inst := range w.state.Instances.All() {
			if inst.Desired == model.DesiredRunning {
				count[inst.Node]++
			}
		}
		for _, n := range w.nodes {
			fmt.Fprintf(&out, "%s %d\n", n, count[n])
		}
	default:
		if text, ok := w.showVolumes(args[0]); ok {
			return text
		}
		w.t.Fatalf("%s: show what?", w.at)
	}
	return out.String()
}

func (w *world) instanceLine(inst *fsm.Instance) string {
	line := fmt.Sprintf("%s %s %s/%s", w.names[inst.ID], inst.Node, inst.Desired, inst.Status.Observed)
	if inst.Version > 1 {
		line += fmt.Sprintf(" v%d", inst.Version)
	}
	if inst.Eviction.Requested {
		line += " marked"
	}
	if inst.WaitsForRoom() {
		line += w.words(fmt.Sprintf(" awaits %v", inst.Links.Awaits))
	}
	if inst.Eviction.Preparing {
		line += " preparing"
	}
	if inst.Status.Reason != "" {
		line += " (" + inst.Status.Reason + ")"
	}
	return line + "\n"
}

// showAddresses prints the node and the ports of every instance that is not terminal.
func (w *world) showAddresses() string {
	var lines []string
	for id, inst := range w.state.Instances.All() {
		if inst.Terminal() {
			continue
		}
		for _, port := range inst.Claims.Ports {
			lines = append(lines, fmt.Sprintf("%s %s:%d\n", w.names[id], inst.Node, port.Number))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}
