package cli

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/model"
)

// jobHCL writes an expanded spec as the job file that says all of it.
func jobHCL(spec model.JobSpec) (string, error) {
	w := &hclWriter{}
	w.block("job", []string{string(spec.Name)}, func() {
		w.text("class", string(spec.Class))
		for i := range spec.Groups {
			w.block("group", []string{spec.Groups[i].Name}, func() { w.group(&spec.Groups[i]) })
		}
	})
	out, err := config.Format("job", []byte(w.b.String()))
	return string(out), err
}

// hclWriter writes blocks and attributes; config.Format aligns them afterwards.
type hclWriter struct{ b strings.Builder }

func (w *hclWriter) block(kind string, labels []string, inside func()) {
	w.b.WriteString(kind)
	for _, l := range labels {
		w.b.WriteString(" " + quoted(l))
	}
	w.b.WriteString(" {\n")
	before := w.b.Len()
	inside()
	if w.b.Len() == before { // port "http" {}
		text := strings.TrimSuffix(w.b.String(), "\n")
		w.b.Reset()
		w.b.WriteString(text)
	}
	w.b.WriteString("}\n")
}

func (w *hclWriter) raw(key, value string) { fmt.Fprintf(&w.b, "%s = %s\n", key, value) }

// text writes a text that is not empty.
func (w *hclWriter) text(key, value string) {
	if value != "" {
		w.raw(key, quoted(value))
	}
}

func (w *hclWriter) number(key string, n int64) { w.raw(key, strconv.FormatInt(n, 10)) }

func (w *hclWriter) duration(key string, d model.Duration) { w.raw(key, quoted(d.String())) }

func (w *hclWriter) texts(key string, list []string) {
	if len(list) == 0 {
		return
	}
	parts := make([]string, len(list))
	for i, one := range list {
		parts[i] = quoted(one)
	}
	w.raw(key, "["+strings.Join(parts, ", ")+"]")
}

// asTexts are names as texts.
func asTexts[T ~string](list []T) []string {
	out := make([]string, len(list))
	for i, one := range list {
		out[i] = string(one)
	}
	return out
}

func (w *hclWriter) textMap(key string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	w.b.WriteString(key + " = {\n")
	for _, k := range slices.Sorted(maps.Keys(m)) {
		w.raw(quoted(k), quoted(m[k]))
	}
	w.b.WriteString("}\n")
}

// quoted writes a text of HCL. What the agent fills in stays a template, anything else that looks like one is escaped.
func quoted(s string) string {
	s = strings.ReplaceAll(s, "%{", "%%{")
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "${")
		b.WriteString(before)
		if !found {
			break
		}
		name, _, closed := strings.Cut(after, "}")
		filled := closed && (strings.HasPrefix(name, "port.") || name == "slot" || name == "node.id" || name == "node.name")
		if !filled {
			b.WriteString("$")
		}
		b.WriteString("${")
		s = after
	}
	text := strconv.Quote(b.String())
	// HCL knows \n \r \t \" \\ and \u, but not \x, \a and the like.
	for short, long := range map[string]string{`\a`: `\u0007`, `\b`: `\u0008`, `\f`: `\u000c`, `\v`: `\u000b`} {
		text = strings.ReplaceAll(text, short, long)
	}
	return text
}

func (w *hclWriter) group(g *model.GroupSpec) {
	if g.Role != model.RoleSystem {
		w.number("count", int64(g.Count))
	}
	w.text("role", string(g.Role))
	if g.Fenced() {
		w.block("exclusive", nil, func() { w.duration("lease", g.Exclusive.Lease) })
	}
	w.block("exec", nil, func() {
		w.text("command", g.Exec.Command)
		w.texts("args", g.Exec.Args)
		w.text("user", g.Exec.User)
		if len(g.Exec.Rlimits) > 0 {
			w.b.WriteString("rlimits = {\n")
			for _, k := range slices.Sorted(maps.Keys(g.Exec.Rlimits)) {
				w.raw(k, strconv.FormatUint(g.Exec.Rlimits[k], 10))
			}
			w.b.WriteString("}\n")
		}
	})
	w.textMap("env", g.Env)
	w.block("resources", nil, func() {
		w.number("cpu", g.Resources.CPU)
		w.text("memory", sizeExact(g.Resources.MemoryBytes))
		if g.Resources.Pids > 0 {
			w.number("pids", g.Resources.Pids)
		}
		if g.Resources.DiskBytes > 0 {
			w.text("disk", sizeExact(g.Resources.DiskBytes))
		}
	})
	w.network(g)
	w.role(g)
	w.lifecycle(g)
	w.placement(g)
}

func (w *hclWriter) network(g *model.GroupSpec) {
	for _, p := range g.Ports {
		w.block("port", []string{p.Name}, func() {
			if p.Static > 0 {
				w.number("static", int64(p.Static))
			}
		})
	}
	for _, v := range g.Volumes {
		w.block("volume", []string{v.Name}, func() {
			w.text("kind", string(v.Kind))
			w.text("path", v.Path)
		})
	}
	for _, s := range g.Services {
		w.block("service", []string{s.Name}, func() {
			w.text("port", s.Port)
			if s.Expose > 0 {
				w.number("expose", int64(s.Expose))
			}
		})
	}
	for _, c := range g.Checks {
		w.block("check", []string{c.Name}, func() {
			w.text("type", string(c.Kind))
			w.text("port", c.Port)
			w.text("path", c.Path)
			w.texts("exec", c.Command)
			w.duration("interval", c.Interval)
			w.duration("timeout", c.Timeout)
			w.duration("grace", c.Grace)
			w.number("successes", int64(c.Successes))
			w.number("failures", int64(c.Failures))
			if c.RestartAfter > 0 {
				w.duration("restart_after", c.RestartAfter)
			}
		})
	}
}

// role writes what asks an instance for its facts, and what runs beside it.
func (w *hclWriter) role(g *model.GroupSpec) {
	if c := g.RoleCheck; c != nil {
		w.block("role_check", nil, func() {
			w.texts("exec", c.Exec)
			w.text("port", c.Port)
			w.text("path", c.Path)
			w.duration("interval", c.Interval)
			w.duration("timeout", c.Timeout)
		})
	}
	if p := g.Peers; p != nil {
		w.block("peers", nil, func() { w.text("signal", p.Signal) })
	}
	for _, h := range g.Hooks {
		w.block("hook", []string{string(h.Name)}, func() {
			w.texts("exec", h.Exec)
			w.duration("timeout", h.Timeout)
			w.text("on_failure", string(h.OnFailure))
		})
	}
}

func (w *hclWriter) lifecycle(g *model.GroupSpec) {
	w.block("stop", nil, func() {
		w.text("signal", g.Stop.Signal)
		w.duration("grace", g.Stop.Grace)
		w.duration("drain_delay", g.Stop.DrainDelay)
	})
	w.block("restart", nil, func() {
		w.number("attempts", int64(g.Restart.Attempts))
		w.duration("interval", g.Restart.Interval)
		w.duration("delay", g.Restart.Delay)
	})
	w.block("reschedule", nil, func() {
		w.number("attempts", int64(g.Reschedule.Attempts))
		w.duration("interval", g.Reschedule.Interval)
	})
	w.block("update", nil, func() {
		u := g.Update
		w.number("max_surge", int64(u.MaxSurge))
		w.number("max_unavailable", int64(u.MaxUnavailable))
		w.text("order", string(u.Order))
		w.duration("min_healthy", u.MinHealthy)
		w.duration("deadline", u.Deadline)
		w.raw("auto_revert", strconv.FormatBool(u.AutoRevert))
		if u.Canary > 0 {
			w.number("canary", int64(u.Canary))
		}
	})
	switch len(g.Budgets) {
	case 0:
	case 1:
		w.text("budget", string(g.Budgets[0]))
	default:
		w.texts("budget", asTexts(g.Budgets))
	}
	if g.Budget != nil {
		w.budget(g.Budget)
	}
	w.block("eviction", nil, func() {
		w.text("mode", string(g.Eviction.Mode))
		w.text("order", string(g.Eviction.Order))
		w.text("surge_wait", string(g.Eviction.SurgeWait))
		w.texts("when", g.Eviction.When)
	})
	w.block("replacement", nil, func() {
		w.text("mode", string(g.Replacement.Mode))
		w.text("identity", g.Replacement.Identity)
		w.text("data", g.Replacement.Data)
		w.texts("when", g.Replacement.When)
	})
	w.block("toleration", nil, func() {
		if g.Toleration.Unreachable != nil {
			w.duration("unreachable", *g.Toleration.Unreachable)
		}
		if g.Toleration.NotReady != nil {
			w.duration("not_ready", *g.Toleration.NotReady)
		}
	})
}

func (w *hclWriter) budget(b *model.BudgetSpec) {
	amount := func(key string, a *model.Amount) {
		switch {
		case a == nil:
		case a.Percent:
			w.raw(key, quoted(fmt.Sprintf("%d%%", a.N)))
		default:
			w.number(key, int64(a.N))
		}
	}
	w.block("budget", nil, func() {
		amount("min_ready", b.MinReady)
		amount("max_down", b.MaxDown)
		if b.Blocking {
			w.raw("blocking", "true")
		}
		if b.Rate != nil {
			w.block("rate", nil, func() {
				w.number("max", int64(b.Rate.Max))
				w.duration("window", b.Rate.Window)
			})
		}
	})
}

func (w *hclWriter) placement(g *model.GroupSpec) {
	rule := func(c model.Constraint) {
		w.text("attribute", c.Attribute)
		w.text("operator", c.Operator)
		w.text("value", c.Value)
	}
	for _, c := range g.Constraints {
		w.block("constraint", nil, func() { rule(c) })
	}
	for _, a := range g.Affinities {
		w.block("affinity", nil, func() {
			rule(a.Constraint)
			w.number("weight", int64(a.Weight))
		})
	}
	for _, s := range g.Spreads {
		w.block("spread", nil, func() { w.text("attribute", s.Attribute) })
	}
	for _, d := range g.Distinct {
		w.block("distinct", nil, func() { w.text("attribute", d) })
	}
}

// sizeExact writes bytes in the largest unit that holds them without rest.
func sizeExact(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	i := 0
	for n > 0 && n%1024 == 0 && i < len(units)-1 {
		n, i = n/1024, i+1
	}
	return strconv.FormatInt(n, 10) + units[i]
}
