package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"

	"github.com/outspan/outspan/model"
)

// ParseJob reads a job file. name stands in error messages only. The result has no defaults filled in:
// model.JobSpec.Expand does that. Errors are *model.Error with code invalid or not_supported, and hold every mistake, a
// line each.
func ParseJob(name string, src []byte) (model.JobSpec, error) {
	var spec model.JobSpec
	body, diags := parse(name, src)
	if diags.HasErrors() {
		return spec, hinted(asError(diags), noJobFile(name, nil, diags))
	}
	d := &decoder{places: places{}}
	d.job(body, &spec)
	if err := asError(d.diags); err != nil {
		return spec, hinted(err, noJobFile(name, body, d.diags))
	}
	expanded := spec.Expand()
	if refusal := expanded.Check(); refusal != nil {
		at := d.places.of(strings.Join([]string{"job", string(spec.Name), refusal.Key}, "/"), name)
		refusal.Message = at + ": " + refusal.Message
		return spec, refusal
	}
	return spec, nil
}

func (d *decoder) job(body hcl.Body, spec *model.JobSpec) {
	d.body(body, field{name: "job", labels: []string{"name"}, required: true, open: func(d *decoder, b *hcl.Block) {
		spec.Name = model.JobName(b.Labels[0])
		d.body(b.Body,
			word("class", &spec.Class),
			blocksOf("group", []string{"name"}, func(d *decoder, b *hcl.Block) {
				spec.Groups = append(spec.Groups, d.group(b))
			}),
		)
	}})
}

// Format writes HCL in its canonical form. The error is that of a file that can't be parsed.
func Format(name string, src []byte) ([]byte, error) {
	if _, diags := parse(name, src); diags.HasErrors() {
		return nil, asError(diags)
	}
	return hclwrite.Format(src), nil
}

// group decodes one group block. Its expressions may name what only the agent knows: those names evaluate to
// themselves, and the agent fills them in.
func (d *decoder) group(b *hcl.Block) model.GroupSpec {
	g := model.GroupSpec{Name: b.Labels[0], Count: 1}
	outer := d.variables
	d.variables = d.agentVariables(b.Body)
	defer func() { d.variables = outer }()
	d.body(b.Body,
		number("count", &g.Count),
		word("role", &g.Role),
		field{name: "exec", required: true, open: func(d *decoder, b *hcl.Block) { d.exec(b.Body, &g.Exec) }},
		textMap("env", &g.Env),
		block("resources", func(d *decoder, b *hcl.Block) {
			d.body(b.Body, number("cpu", &g.Resources.CPU), size("memory", &g.Resources.MemoryBytes),
				number("pids", &g.Resources.Pids), size("disk", &g.Resources.DiskBytes))
		}),
		blocksOf("port", []string{"name"}, func(d *decoder, b *hcl.Block) {
			p := model.PortSpec{Name: b.Labels[0]}
			d.body(b.Body, staticPort(&p.Static))
			g.Ports = append(g.Ports, p)
		}),
		blocksOf("service", []string{"name"}, func(d *decoder, b *hcl.Block) {
			s := model.ServiceSpec{Name: b.Labels[0]}
			d.body(b.Body, text("port", &s.Port, true), number("expose", &s.Expose))
			g.Services = append(g.Services, s)
		}),
		blocksOf("check", []string{"name"}, func(d *decoder, b *hcl.Block) { g.Checks = append(g.Checks, d.check(b)) }),
		blocksOf("volume", []string{"name"}, func(d *decoder, b *hcl.Block) {
			v := model.VolumeSpec{Name: b.Labels[0], Kind: model.VolumeLocal}
			d.body(b.Body, word("kind", &v.Kind), text("path", &v.Path, true))
			g.Volumes = append(g.Volumes, v)
		}),
		block("stop", func(d *decoder, b *hcl.Block) {
			d.body(b.Body, text("signal", &g.Stop.Signal), durationTo("grace", &g.Stop.Grace), durationTo("drain_delay", &g.Stop.DrainDelay))
		}),
		block("restart", func(d *decoder, b *hcl.Block) {
			d.body(b.Body, number("attempts", &g.Restart.Attempts), durationTo("interval", &g.Restart.Interval), durationTo("delay", &g.Restart.Delay))
		}),
		block("reschedule", func(d *decoder, b *hcl.Block) {
			d.body(b.Body, number("attempts", &g.Reschedule.Attempts), durationTo("interval", &g.Reschedule.Interval))
		}),
		block("update", func(d *decoder, b *hcl.Block) { d.update(b.Body, &g.Update) }),
		names("budget", &g.Budgets), // shared ones; beside it may stand a block of its own
		block("budget", func(d *decoder, b *hcl.Block) { g.Budget = d.budget(b.Body) }),
		block("eviction", func(d *decoder, b *hcl.Block) {
			d.body(b.Body, word("mode", &g.Eviction.Mode), word("order", &g.Eviction.Order), word("surge_wait", &g.Eviction.SurgeWait), texts("when", &g.Eviction.When))
		}),
		block("replacement", func(d *decoder, b *hcl.Block) {
			d.body(b.Body, word("mode", &g.Replacement.Mode), text("identity", &g.Replacement.Identity), text("data", &g.Replacement.Data), texts("when", &g.Replacement.When))
		}),
		block("toleration", func(d *decoder, b *hcl.Block) {
			d.body(b.Body,
				duration("unreachable", func(v model.Duration) { g.Toleration.Unreachable = &v }),
				duration("not_ready", func(v model.Duration) { g.Toleration.NotReady = &v }))
		}),
		leaseOrNot(&g.Exclusive), leaseBlock(&g.Exclusive),
		blocksOf("constraint", nil, func(d *decoder, b *hcl.Block) {
			c := model.Constraint{Operator: "="}
			d.body(b.Body, text("attribute", &c.Attribute, true), text("operator", &c.Operator), text("value", &c.Value))
			g.Constraints = append(g.Constraints, c)
		}),
		blocksOf("affinity", nil, func(d *decoder, b *hcl.Block) {
			a := model.Affinity{Constraint: model.Constraint{Operator: "="}, Weight: 50}
			d.body(b.Body, text("attribute", &a.Attribute, true), text("operator", &a.Operator), text("value", &a.Value), number("weight", &a.Weight))
			g.Affinities = append(g.Affinities, a)
		}),
		blocksOf("spread", nil, func(d *decoder, b *hcl.Block) {
			var s model.Spread
			d.body(b.Body, text("attribute", &s.Attribute, true))
			g.Spreads = append(g.Spreads, s)
		}),
		blocksOf("distinct", nil, func(d *decoder, b *hcl.Block) {
			var attribute string
			d.body(b.Body, text("attribute", &attribute, true))
			g.Distinct = append(g.Distinct, attribute)
		}),
		block("role_check", func(d *decoder, b *hcl.Block) { g.RoleCheck = d.roleCheck(b.Body) }),
		block("peers", func(d *decoder, b *hcl.Block) { g.Peers = d.peers(b.Body) }),
		blocksOf("hook", []string{"name"}, func(d *decoder, b *hcl.Block) { g.Hooks = append(g.Hooks, d.hook(b)) }),
	)
	return g
}

// leaseOrNot is the short form of the block exclusive: true is a lease of the default length, false none.
func leaseOrNot(to **model.ExclusiveSpec) field {
	return field{name: "exclusive", kind: "true or false", set: func(d *decoder, a *hcl.Attribute) {
		if v, ok := d.value(a, cty.Bool, `exclusive { lease = "1m" }`); ok && v.True() {
			*to = &model.ExclusiveSpec{}
		}
	}}
}

func leaseBlock(to **model.ExclusiveSpec) field {
	return block("exclusive", func(d *decoder, b *hcl.Block) {
		*to = &model.ExclusiveSpec{}
		d.body(b.Body, durationTo("lease", &(*to).Lease))
	})
}

func (d *decoder) exec(body hcl.Body, e *model.ExecSpec) {
	d.body(body, text("command", &e.Command, true), texts("args", &e.Args), text("user", &e.User), numberMap("rlimits", &e.Rlimits))
}

func (d *decoder) check(b *hcl.Block) model.CheckSpec {
	c := model.CheckSpec{Name: b.Labels[0]}
	d.body(b.Body,
		word("type", &c.Kind), text("port", &c.Port), text("path", &c.Path), texts("exec", &c.Command),
		durationTo("interval", &c.Interval), durationTo("timeout", &c.Timeout), durationTo("grace", &c.Grace),
		number("successes", &c.Successes), number("failures", &c.Failures),
		durationTo("restart_after", &c.RestartAfter))
	return c
}

func (d *decoder) peers(body hcl.Body) *model.PeersSpec {
	var p model.PeersSpec
	d.body(body, text("signal", &p.Signal))
	return &p
}

func (d *decoder) roleCheck(body hcl.Body) *model.RoleCheckSpec {
	c := &model.RoleCheckSpec{}
	d.body(body, texts("exec", &c.Exec), text("port", &c.Port), text("path", &c.Path), durationTo("interval", &c.Interval), durationTo("timeout", &c.Timeout))
	return c
}

func (d *decoder) hook(b *hcl.Block) model.HookSpec {
	h := model.HookSpec{Name: model.HookName(b.Labels[0])}
	d.body(b.Body, texts("exec", &h.Exec, true), durationTo("timeout", &h.Timeout), word("on_failure", &h.OnFailure))
	return h
}

func (d *decoder) update(body hcl.Body, u *model.UpdateSpec) {
	d.body(body,
		number("max_surge", &u.MaxSurge), number("max_unavailable", &u.MaxUnavailable), word("order", &u.Order),
		durationTo("min_healthy", &u.MinHealthy), durationTo("deadline", &u.Deadline), flag("auto_revert", &u.AutoRevert), number("canary", &u.Canary))
}

func (d *decoder) budget(body hcl.Body) *model.BudgetSpec {
	b := &model.BudgetSpec{}
	d.body(body,
		amount("min_ready", &b.MinReady), amount("max_down", &b.MaxDown), flag("blocking", &b.Blocking),
		block("rate", func(d *decoder, blk *hcl.Block) {
			b.Rate = &model.RateSpec{}
			d.body(blk.Body, number("max", &b.Rate.Max, true), durationTo("window", &b.Rate.Window))
		}))
	return b
}

// names takes one name, or a list of them.
func names[T ~string](name string, to *[]T) field {
	return field{name: name, kind: "name, or list of names", set: func(d *decoder, a *hcl.Attribute) {
		v, diags := a.Expr.Value(d.variables)
		d.diags = append(d.diags, diags...)
		if diags.HasErrors() {
			return
		}
		if !v.IsNull() && v.Type() == cty.String {
			*to = []T{T(v.AsString())}
			return
		}
		if v.IsNull() || !v.Type().IsTupleType() && !v.Type().IsListType() {
			d.fail(a.Expr.Range(), "Wrong type", fmt.Sprintf("%s takes a name, %s = \"a\", or a list of names, %s = [\"a\", \"b\"].", name, name, name))
			return
		}
		var list []string
		texts(name, &list).set(d, a)
		for _, one := range list {
			*to = append(*to, T(one))
		}
	}}
}

// amount takes a number of instances, 2, or a percentage, "25%".
func amount(name string, to **model.Amount) field {
	return field{name: name, kind: "whole number or percentage", set: func(d *decoder, a *hcl.Attribute) {
		v, diags := a.Expr.Value(d.variables)
		d.diags = append(d.diags, diags...)
		if diags.HasErrors() {
			return
		}
		if !v.IsNull() && v.Type() == cty.Number {
			if n, exact := v.AsBigFloat().Int64(); exact == 0 {
				*to = &model.Amount{N: int(n)}
				return
			}
		}
		if !v.IsNull() && v.Type() == cty.String && strings.HasSuffix(v.AsString(), "%") {
			if n, err := strconv.Atoi(strings.TrimSuffix(v.AsString(), "%")); err == nil {
				*to = &model.Amount{N: n, Percent: true}
				return
			}
		}
		d.fail(a.Expr.Range(), "Wrong type", fmt.Sprintf("%s takes a whole number of instances, such as 2, or a percentage, such as \"25%%\".", name))
	}}
}

// staticPort reads the port number that an instance insists on.
func staticPort(to *int) field {
	return field{name: "static", kind: "whole number", set: func(d *decoder, a *hcl.Attribute) {
		number("static", to).set(d, a)
		if *to < 1 || *to > 65535 {
			d.fail(a.Expr.Range(), "Not a port", "static must be 1 to 65535; leave it out for a dynamic port.")
		}
	}}
}

// agentVariables are the names that an expression of a group may use. Each stands for itself, "${port.http}", until the
// agent puts in the value.
func (d *decoder) agentVariables(body hcl.Body) *hcl.EvalContext {
	ports := map[string]cty.Value{}
	if syntax, ok := body.(*hclsyntax.Body); ok {
		for _, b := range syntax.Blocks {
			if b.Type == "port" && len(b.Labels) == 1 {
				ports[b.Labels[0]] = cty.StringVal("${port." + b.Labels[0] + "}")
			}
		}
		d.wantPorts(syntax, ports)
	}
	return &hcl.EvalContext{Variables: map[string]cty.Value{
		"port": cty.ObjectVal(ports),
		"slot": cty.StringVal("${slot}"),
		"node": cty.ObjectVal(map[string]cty.Value{"id": cty.StringVal("${node.id}"), "name": cty.StringVal("${node.name}")}),
	}}
}

// wantPorts names the expressions that refer to a port which the group does not have, and adds it so that they are
// named once.
func (d *decoder) wantPorts(body *hclsyntax.Body, ports map[string]cty.Value) {
	known := slices.Sorted(maps.Keys(ports))
	_ = hclsyntax.VisitAll(body, func(node hclsyntax.Node) hcl.Diagnostics {
		e, ok := node.(*hclsyntax.ScopeTraversalExpr)
		if !ok || len(e.Traversal) < 2 || e.Traversal.RootName() != "port" {
			return nil
		}
		attr, ok := e.Traversal[1].(hcl.TraverseAttr)
		if !ok || slices.Contains(known, attr.Name) {
			return nil
		}
		hint := fmt.Sprintf("write: port %q {}", attr.Name)
		if len(known) > 0 {
			hint = "its ports are: " + strings.Join(known, ", ")
		}
		d.fail(attr.SrcRange, "Unknown port", fmt.Sprintf("The group has no port %q; %s.", attr.Name, hint))
		ports[attr.Name] = cty.StringVal("")
		return nil
	})
}
