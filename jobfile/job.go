package jobfile

import (
	"github.com/hashicorp/hcl/v2"

	"github.com/outspan/outspan/internal/hclfile"
	"github.com/outspan/outspan/model"
)

// jobKeys lists the keys of a job file, each with the field of spec that has its value. The same list serves to decode
// job files, to print them and to generate the reference.
func jobKeys(spec *model.JobSpec) []hclfile.Field {
	return []hclfile.Field{hclfile.Block("job",
		hclfile.Label(&spec.Name),
		hclfile.Text("class", &spec.Class),
		hclfile.Blocks("group", &spec.Groups, model.GroupSpec{Count: 1}, groupKeys).Variables(agentVariables).
			Foreign(foreignToGroup),
	).Required()}
}

// groupKeys lists the keys of a group in the order of the reference. A printed job has them in another order: the names
// at the end of this function come first.
func groupKeys(g *model.GroupSpec) []hclfile.Field {
	return hclfile.PrintFirst([]hclfile.Field{
		hclfile.Label(&g.Name),
		hclfile.Number("count", &g.Count).PrintIf(g.Role != model.RoleSystem),
		hclfile.Text("role", &g.Role),
		hclfile.Block("exec", execKeys(&g.Exec)...).PrintIf(g.Container == nil || g.Exec.Command != ""),
		hclfile.Optional("container", &g.Container, model.ContainerSpec{}, containerKeys).Foreign(foreignToContainer),
		hclfile.TextMap("env", &g.Env),
		hclfile.Block("resources", resourceKeys(&g.Resources)...),
		hclfile.Blocks("port", &g.Ports, model.PortSpec{}, portKeys),
		hclfile.Blocks("service", &g.Services, model.ServiceSpec{}, serviceKeys),
		hclfile.Blocks("check", &g.Checks, model.CheckSpec{}, checkKeys),
		hclfile.Blocks("volume", &g.Volumes, model.VolumeSpec{Kind: model.VolumeLocal}, volumeKeys),
		hclfile.Block("stop", stopKeys(&g.Stop)...),
		hclfile.Block("restart", restartKeys(&g.Restart)...),
		hclfile.Block("reschedule", rescheduleKeys(&g.Reschedule)...),
		hclfile.Block("update", updateKeys(&g.Update)...),
		hclfile.Names("budget", &g.Budgets), // names of shared budgets; a block "budget" may be given too
		hclfile.Optional("budget", &g.Budget, model.BudgetSpec{}, budgetKeys),
		hclfile.Block("eviction", evictionKeys(&g.Eviction)...),
		hclfile.Block("replacement", replacementKeys(&g.Replacement)...),
		hclfile.Block("toleration", tolerationKeys(&g.Toleration)...),
		hclfile.Optional("exclusive", &g.Exclusive, model.ExclusiveSpec{}, exclusiveKeys),
		leaseOrNot(&g.Exclusive),
		hclfile.Blocks("constraint", &g.Constraints, model.Constraint{Operator: "="}, constraintKeys),
		hclfile.Blocks("affinity", &g.Affinities, model.Affinity{Constraint: model.Constraint{Operator: "="}, Weight: 50},
			affinityKeys),
		hclfile.Blocks("spread", &g.Spreads, model.Spread{}, spreadKeys),
		hclfile.Blocks("distinct", &g.Distinct, "", distinctKeys),
		hclfile.Optional("role_check", &g.RoleCheck, model.RoleCheckSpec{}, roleCheckKeys),
		hclfile.Optional("peers", &g.Peers, model.PeersSpec{}, peersKeys),
		hclfile.Blocks("hook", &g.Hooks, model.HookSpec{}, hookKeys),
	}, "count", "role", "exclusive", "exec", "container", "env", "resources", "port", "volume", "service", "check",
		"role_check", "peers", "hook")
}

func execKeys(e *model.ExecSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Text("command", &e.Command).Required(), hclfile.Texts("args", &e.Args), hclfile.Text("user", &e.User),
		hclfile.NumberMap("rlimits", &e.Rlimits),
	}
}

func containerKeys(c *model.ContainerSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Text("image", &c.Image).Required(), hclfile.Texts("platforms", &c.Platforms),
		hclfile.Texts("entrypoint", &c.Entrypoint), hclfile.Text("command", &c.Command), hclfile.Texts("args", &c.Args),
		hclfile.Text("user", &c.User), hclfile.Text("network", &c.Network),
		hclfile.Flag("read_only", &c.ReadOnly).PrintIf(c.ReadOnly), hclfile.Texts("tmpfs", &c.Tmpfs),
		hclfile.Blocks("mount", &c.Mounts, model.MountSpec{}, mountKeys),
		hclfile.Size("shm", &c.ShmBytes).PrintIf(c.ShmBytes > 0), hclfile.NumberMap("rlimits", &c.Rlimits),
		hclfile.Texts("cap_add", &c.CapAdd), hclfile.Texts("cap_drop", &c.CapDrop),
	}
}

func mountKeys(m *model.MountSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Label(&m.Path), hclfile.Text("source", &m.Source).Required(),
		hclfile.Flag("read_only", &m.ReadOnly).PrintIf(m.ReadOnly),
	}
}

func resourceKeys(r *model.Resources) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Number("cpu", &r.CPU), hclfile.Size("memory", &r.MemoryBytes),
		hclfile.Number("pids", &r.Pids).PrintIf(r.Pids > 0), hclfile.Size("disk", &r.DiskBytes).PrintIf(r.DiskBytes > 0),
	}
}

func portKeys(p *model.PortSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Label(&p.Name), portNumber("static", &p.Static, "for a dynamic port").PrintIf(p.Static > 0),
		portNumber("to", &p.To, "for the number of the node's port").PrintIf(p.To > 0),
	}
}

func serviceKeys(s *model.ServiceSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Label(&s.Name), hclfile.Text("port", &s.Port).Required(),
		hclfile.Number("expose", &s.Expose).PrintIf(s.Expose > 0),
	}
}

func checkKeys(c *model.CheckSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Label(&c.Name),
		hclfile.Text("type", &c.Kind), hclfile.Text("port", &c.Port), hclfile.Text("path", &c.Path),
		hclfile.Texts("exec", &c.Command),
		hclfile.Duration("interval", &c.Interval), hclfile.Duration("timeout", &c.Timeout),
		hclfile.Duration("grace", &c.Grace),
		hclfile.Number("successes", &c.Successes), hclfile.Number("failures", &c.Failures),
		hclfile.Duration("restart_after", &c.RestartAfter).PrintIf(c.RestartAfter > 0),
	}
}

func volumeKeys(v *model.VolumeSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Label(&v.Name), hclfile.Text("kind", &v.Kind), hclfile.Text("path", &v.Path).Required(),
	}
}

func stopKeys(s *model.StopSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Text("signal", &s.Signal), hclfile.Duration("grace", &s.Grace),
		hclfile.Duration("drain_delay", &s.DrainDelay),
	}
}

func restartKeys(r *model.RestartSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Number("attempts", &r.Attempts), hclfile.Duration("interval", &r.Interval),
		hclfile.Duration("delay", &r.Delay),
	}
}

func rescheduleKeys(r *model.RetrySpec) []hclfile.Field {
	return []hclfile.Field{hclfile.Number("attempts", &r.Attempts), hclfile.Duration("interval", &r.Interval)}
}

func updateKeys(u *model.UpdateSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Number("max_surge", &u.MaxSurge), hclfile.Number("max_unavailable", &u.MaxUnavailable),
		hclfile.Text("order", &u.Order),
		hclfile.Duration("min_healthy", &u.MinHealthy), hclfile.Duration("deadline", &u.Deadline),
		hclfile.Flag("auto_revert", &u.AutoRevert), hclfile.Number("canary", &u.Canary).PrintIf(u.Canary > 0),
	}
}

func budgetKeys(b *model.BudgetSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Amount("min_ready", &b.MinReady), hclfile.Amount("max_down", &b.MaxDown),
		hclfile.Flag("blocking", &b.Blocking).PrintIf(b.Blocking),
		hclfile.Optional("rate", &b.Rate, model.RateSpec{}, rateKeys),
	}
}

func rateKeys(r *model.RateSpec) []hclfile.Field {
	return []hclfile.Field{hclfile.Number("max", &r.Max).Required(), hclfile.Duration("window", &r.Window)}
}

func evictionKeys(e *model.EvictionSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Text("mode", &e.Mode), hclfile.Text("order", &e.Order), hclfile.Text("surge_wait", &e.SurgeWait),
		hclfile.Texts("when", &e.When),
	}
}

func replacementKeys(r *model.ReplacementSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Text("mode", &r.Mode), hclfile.Text("identity", &r.Identity), hclfile.Text("data", &r.Data),
		hclfile.Texts("when", &r.When),
	}
}

func tolerationKeys(t *model.TolerationSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.OptionalDuration("unreachable", &t.Unreachable), hclfile.OptionalDuration("not_ready", &t.NotReady),
	}
}

func exclusiveKeys(e *model.ExclusiveSpec) []hclfile.Field {
	return []hclfile.Field{hclfile.Duration("lease", &e.Lease)}
}

func constraintKeys(c *model.Constraint) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Text("attribute", &c.Attribute).Required(), hclfile.Text("operator", &c.Operator),
		hclfile.Text("value", &c.Value),
	}
}

func affinityKeys(a *model.Affinity) []hclfile.Field {
	return append(constraintKeys(&a.Constraint), hclfile.Number("weight", &a.Weight))
}

func spreadKeys(s *model.Spread) []hclfile.Field {
	return []hclfile.Field{hclfile.Text("attribute", &s.Attribute).Required()}
}

func distinctKeys(attribute *string) []hclfile.Field {
	return []hclfile.Field{hclfile.Text("attribute", attribute).Required()}
}

func roleCheckKeys(c *model.RoleCheckSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Texts("exec", &c.Exec), hclfile.Text("port", &c.Port), hclfile.Text("path", &c.Path),
		hclfile.Duration("interval", &c.Interval), hclfile.Duration("timeout", &c.Timeout),
	}
}

func peersKeys(p *model.PeersSpec) []hclfile.Field {
	return []hclfile.Field{hclfile.Text("signal", &p.Signal)}
}

func hookKeys(h *model.HookSpec) []hclfile.Field {
	return []hclfile.Field{
		hclfile.Label(&h.Name), hclfile.Texts("exec", &h.Exec).Required(), hclfile.Duration("timeout", &h.Timeout),
		hclfile.Text("on_failure", &h.OnFailure),
	}
}

// leaseOrNot is the attribute "exclusive", the short form of the block with the same name. The value true asks for a
// lease of the default length; false asks for none, so a block beside it is a mistake. It must follow the block in the
// list of keys, so that the block is decoded before it.
func leaseOrNot(to **model.ExclusiveSpec) hclfile.Field {
	return hclfile.Attribute("exclusive", "true or false", func(d *hclfile.Decoder, a *hcl.Attribute) {
		v, ok := d.Flag(a, `exclusive { lease = "1m" }`)
		switch {
		case ok && v && *to == nil:
			*to = &model.ExclusiveSpec{}
		case ok && !v && *to != nil:
			d.Fail(a.Expr.Range(), "Lease and no lease",
				"exclusive is false, and there is also a block exclusive, which asks for a lease: remove one of them.")
		}
	})
}

// portNumber is an attribute with a port number from 1 to 65535. without says what leaving it out is for.
func portNumber(name string, to *int, without string) hclfile.Field {
	return hclfile.Number(name, to).Checked(func() (summary, detail string) {
		if *to < 1 || *to > 65535 {
			return "Not a port", name + " must be 1 to 65535; leave it out " + without + "."
		}
		return "", ""
	})
}
