package reconcile_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/reconcile"
)

// vocabulary returns the commands of scenarios by name. Each function runs one command and returns its output.
func vocabulary() map[string]func(*world, []string) string {
	return map[string]func(*world, []string) string{
		// settings offline_after=2s place_on_degraded failure_domain_label=rack algorithm=binpack paused
		// start_timeout=1m
		"settings": (*world).cmdSettings,
		// node n1 n2 memory=1GiB cpu=1000 rack=r1 ports=20000-20003: the agents of new nodes register and send an empty
		// inventory
		"node": (*world).cmdNode,
		// run web http count=3 memory=128MiB ... ; db count=1 volume=data: submits a job of groups
		"run": (*world).cmdRun,
		// scale web/http 5; stop web; stop web purge; restart web
		"scale": func(w *world, a []string) string {
			job, group := model.GroupID(a[0]).Split()
			return w.must(w.apply("cli:ann", &fsm.JobScale{Job: job, Group: group, Count: number(a[1])}))
		},
		"stop": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.JobStop{Job: model.JobName(a[0]), Purge: slices.Contains(a, "purge")}))
		},
		"restart": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.JobRestart{Job: model.JobName(a[0])}))
		},
		"revert": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.JobRevert{Job: model.JobName(a[0]), Version: uint64(number(a[1]))}))
		},
		"promote": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.DeploymentPromote{ID: model.DeploymentID(a[0])}))
		},
		"fail": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann",
				&fsm.DeploymentStep{ID: model.DeploymentID(a[0]), Status: model.DeploymentFailed, Reason: "failed by ann"}))
		},
		// drain d1 n1 n2 deadline=10m parallel=1 downtime=* force force_at_deadline ignore_system
		"drain": (*world).cmdDrain,
		"pause": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.DrainPause{ID: model.DrainID(a[0]), Paused: true}))
		},
		"resume": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.DrainPause{ID: model.DrainID(a[0])}))
		},
		"cancel": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.DrainCancel{ID: model.DrainID(a[0]), Uncordon: len(a) > 1}))
		},
		"cordon":   func(w *world, a []string) string { return w.intent(a, model.IntentCordoned) },
		"uncordon": func(w *world, a []string) string { return w.intent(a, model.IntentActive) },
		"enable":   func(w *world, a []string) string { return w.intent(a, model.IntentActive) },
		"disable":  func(w *world, a []string) string { return w.intent(a, model.IntentDisabled) },
		"ack": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.NodeAck{ID: model.NodeID(a[0])}))
		},
		"confirm-dead": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.NodeConfirmDead{ID: model.NodeID(a[0]), Force: slices.Contains(a, "force")}))
		},
		"label": func(w *world, a []string) string {
			k, v, _ := strings.Cut(a[1], "=")
			return w.must(w.apply("cli:ann", &fsm.NodeLabel{ID: model.NodeID(a[0]), Labels: map[string]string{k: v}}))
		},
		// class batch fair: sets preempt_equal of the class; with fair, its instances may preempt each other
		"class": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.ClassSet{Name: model.ClassName(a[0]), PreemptEqual: model.PreemptEqual(a[1])}))
		},
		// hold on, hold off: HOLD begins or ends
		"hold": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.HoldSet{Active: a[0] == "on", Reason: "ann says so"}))
		},
		// evict web-http-0a: an operator stops the instance, if the budget allows; evict web-http-0a surge [avoid]
		// [grace=3s]: the instance is replaced before it is stopped
		"evict": func(w *world, a []string) string {
			if slices.Contains(a, "surge") {
				c := &fsm.InstanceMark{ID: w.id(a[0]), Requested: true, Surge: true, Cause: model.CauseUser, By: "ann",
					Avoid: slices.Contains(a, "avoid")}
				if grace, ok := strings.CutPrefix(a[len(a)-1], "grace="); ok {
					d := duration(grace)
					c.Grace = &d
				}
				return w.must(w.apply("cli:ann", c))
			}
			return w.must(w.apply("cli:ann", &fsm.InstanceStop{ID: w.id(a[0]), Cause: model.CauseUser, By: "ann"}))
		},
		// agents [n1 n2]: these agents (without names, all agents) start and stop instances as assigned, and started
		// instances become ready. An agent that can't reach the servers does nothing.
		"agents": func(w *world, a []string) string { w.work(a); return "" },
		// report web-http-0a failed crash_loop: the agent of the instance reports this status
		"report": (*world).cmdReport,
		// sync off, sync on (the default): whether members that become ready report that they are in sync; sync web-db-0a:
		// this member reports now that it is in sync
		"sync": (*world).cmdSync,
		// copies: prints the copies of replicated volumes, and the nodes from which a policy evicts members
		"copies": (*world).cmdCopies,
		// unsync web-db-0a: the member reports that it is not in sync any more
		"unsync": func(w *world, a []string) string {
			for _, name := range a {
				w.say1(name, "false")
			}
			return ""
		},
		// rebuild web-db-0a: a user asks that the member is rebuilt on another node
		"rebuild": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann",
				&fsm.InstanceMark{ID: w.id(a[0]), Requested: true, Cause: model.CauseUser, By: "ann"}))
		},
		// unmark web-db-0a: a user cancels the eviction of the instance
		"unmark": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.InstanceMark{ID: w.id(a[0])}))
		},
		// force web-db-0a: an operator stops the instance and bypasses all limits
		"force": func(w *world, a []string) string {
			return w.must(w.apply("cli:ann", &fsm.InstanceStop{ID: w.id(a[0]), Cause: model.CauseUser, By: "ann", Bypass: true}))
		},
		// silent 70s n1 n2: the last heartbeats of these nodes are 70 s old, and the servers agree that the nodes are
		// offline. The next decision marks them offline, unless HOLD forbids that.
		"silent": func(w *world, a []string) string {
			for _, n := range a[1:] {
				w.live[model.NodeID(n)] = fsm.Liveness{Age: duration(a[0]), Gossip: fsm.GossipDead, Silent: true}
			}
			return ""
		},
		// unheard 70s n1 n2@s2: like silent, but the leader has never heard these nodes. The server s2 hears n2, so n2 is not
		// silent.
		"unheard": func(w *world, a []string) string {
			for _, n := range a[1:] {
				id, by, _ := strings.Cut(n, "@")
				w.live[model.NodeID(id)] = fsm.Liveness{Age: duration(a[0]), Gossip: fsm.GossipDead, Silent: by == "",
					Unheard: true, SeenBy: model.ServerID(by)}
			}
			return ""
		},
		// restored: the state was restored from a snapshot; restored confirm: an operator confirms the restore
		"restored": func(w *world, a []string) string {
			return w.must(w.apply(model.ActorLeader, &fsm.RestoreMark{Confirm: len(a) > 0}))
		},
		// late 40s n1 n2@s2: the last heartbeats of these nodes are 40 s old, but gossip sees both nodes alive, and the
		// server s2 hears n2
		"late": func(w *world, a []string) string {
			for _, n := range a[1:] {
				id, by, _ := strings.Cut(n, "@")
				w.live[model.NodeID(id)] = fsm.Liveness{Age: duration(a[0]), Gossip: fsm.GossipAlive, SeenBy: model.ServerID(by)}
			}
			return ""
		},
		// paused 40s n1 n2: the leader was paused for 40 s and has not heard these nodes since
		"paused": func(w *world, a []string) string {
			for _, n := range a[1:] {
				w.live[model.NodeID(n)] = fsm.Liveness{Age: duration(a[0]), Gossip: fsm.GossipAlive, Paused: true}
			}
			return ""
		},
		// avoid web-http-0a: an operator stops the instance, and its group avoids the node for an hour
		"avoid": func(w *world, a []string) string {
			why := cmp.Or(strings.Join(a[1:], " "), "ann")
			return w.must(w.apply("cli:ann", &fsm.InstanceStop{ID: w.id(a[0]), Cause: model.CauseUser, By: why, Avoid: true}))
		},
		// moves: prints the moves that the rescheduler would make on an operator's request; rebalance: an operator makes this
		// request
		"moves":     func(w *world, _ []string) string { moves, _ := reconcile.Moves(w.input()); return w.movesText(moves) },
		"rebalance": (*world).cmdRebalance,
		"gossip": func(w *world, a []string) string {
			w.live[model.NodeID(a[0])] = fsm.Liveness{Gossip: fsm.Gossip(a[1])}
			return ""
		},
		// deaf 30s n1 n2: the heartbeats of these nodes arrive, but their agents have got no answer for 30 s
		"deaf": func(w *world, a []string) string {
			for _, n := range a[1:] {
				w.live[model.NodeID(n)] = fsm.Liveness{Gossip: fsm.GossipAlive, Deaf: duration(a[0])}
			}
			return ""
		},
		"heard": func(w *world, a []string) string {
			for _, n := range a {
				w.live[model.NodeID(n)] = fsm.Liveness{Gossip: fsm.GossipAlive}
			}
			return ""
		},
		// troubled n1 n2 disk_full: these agents report that a check of their machine fails; well n1: this agent reports that
		// no check fails any more
		"troubled": (*world).cmdTroubled,
		"well":     (*world).cmdTroubled,
		// return n1: the agent registers again and still runs its instances; reboot n1: the agent registers again after a
		// reboot, which ended its instances
		"return": func(w *world, a []string) string { return w.comeBack(model.NodeID(a[0]), false) },
		"reboot": func(w *world, a []string) string { return w.comeBack(model.NodeID(a[0]), true) },
		"advance": func(w *world, a []string) string {
			w.now = w.now.Add(duration(a[0]))
			for _, n := range w.nodes {
				if l := w.live[n]; l.Age > 0 {
					l.Age += duration(a[0])
					w.live[n] = l
				}
			}
			return ""
		},
		"decide": func(w *world, _ []string) string { return w.decide() },
		// settle: decides and lets all agents work, until nothing changes; prints what was decided
		"settle": (*world).cmdSettle,
		// quietly COMMAND...: runs the command and prints nothing
		"quietly": func(w *world, a []string) string { w.run(strings.Join(a, " ")); return "" },
		"show":    (*world).cmdShow,
		// status d1; forecast n1 downtime=*; why web/http; plan web http count=3; events [type...]
		"status":   (*world).cmdStatus,
		"forecast": (*world).cmdForecast,
		"why":      (*world).cmdWhy,
		"plan":     (*world).cmdPlan,
		"events":   (*world).cmdEvents,
		// remember: keeps the state; stale: decides on the kept state and commits the plan to the present state
		"remember": func(w *world, _ []string) string { w.remembered = w.state; return "" },
		"stale":    (*world).cmdStale,
		// failover: another server becomes the leader; it knows only the state, and hears the same agents
		"failover": func(w *world, _ []string) string { w.term++; return "" },
	}
}

func (w *world) run(line string) string {
	w.t.Helper()
	words := strings.Fields(line)
	var command func(*world, []string) string
	ok := false
	for _, commands := range []func() map[string]func(*world, []string) string{vocabulary, imageVocabulary,
		volumeVocabulary, budgetVocabulary, roleVocabulary} {
		if command, ok = commands()[words[0]]; ok {
			break
		}
	}
	if !ok {
		w.t.Fatalf("%s: no such command", w.at)
	}
	return command(w, words[1:])
}

// id returns the id of an instance. The instance is given by its name, or by its group and node, such as web-db@n1.
func (w *world) id(name string) model.InstanceID {
	if group, node, at := strings.Cut(name, "@"); at {
		for inst := range w.state.InstancesOn(model.NodeID(node)) {
			if strings.ReplaceAll(string(inst.Group), "/", "-") == group && !inst.Terminal() {
				return inst.ID
			}
		}
	}
	id, ok := w.ids[name]
	if !ok {
		w.t.Fatalf("%s: there is no instance %s; there are %v", w.at, name, w.ids)
	}
	return id
}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		panic(err)
	}
	return n
}

func duration(text string) model.Duration {
	d, err := model.ParseDuration(text)
	if err != nil {
		panic(err)
	}
	return d
}

func size(text string) int64 {
	for unit, factor := range map[string]int64{"GiB": 1 << 30, "MiB": 1 << 20} {
		if n, ok := strings.CutSuffix(text, unit); ok {
			return int64(number(n)) * factor
		}
	}
	panic("no size: " + text)
}

func amount(text string) *model.Amount {
	n, percent := strings.CutSuffix(text, "%")
	return &model.Amount{N: number(n), Percent: percent}
}

func (w *world) intent(nodes []string, intent model.Intent) string {
	out := ""
	for _, n := range nodes {
		out += w.must(w.apply("cli:ann", &fsm.NodeIntent{ID: model.NodeID(n), Intent: intent}))
	}
	return out
}

func (w *world) cmdSettings(args []string) string {
	s := w.state.Settings
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "offline_after":
			s.OfflineAfter = duration(value)
		case "overhead":
			s.InstanceOverhead = int64(number(value)) << 20
		case "start_timeout":
			s.StartTimeout = duration(value)
		case "failure_domain_label":
			s.FailureDomainLabel = value
		case "algorithm":
			s.Algorithm = value
		case "place_on_degraded":
			s.PlaceOnDegraded = true
		case "node_drain_policy":
			s.NodeDrainPolicy = value
		case "evict_on":
			s.EvictOn = model.EvictOn(value)
		case "paused":
			s.Paused = value != "false"
		case "rescheduler":
			s.Rescheduler = value
		case "min_age":
			s.MoveMinAge = duration(value)
		case "cooldown":
			s.MoveCooldown = duration(value)
		case "cycle":
			s.MoveCycle = duration(value)
		case "moves":
			s.MovesPerCycle = number(value)
		case "gain":
			s.MoveGain = number(value)
		case "window":
			s.MoveWindow = strings.ReplaceAll(value, "_", " ")
		default:
			w.t.Fatalf("%s: no such setting", w.at)
		}
	}
	return w.must(w.apply("cli:ann", &fsm.SettingsSet{Settings: s}))
}

func (w *world) cmdNode(args []string) string {
	var names []string
	called := "" // the name, if it is not the id
	shape := model.NodeShape{Capacity: model.Resources{CPU: 4000, MemoryBytes: 1 << 30}, PortMin: 20000, PortMax: 20999,
		Labels: map[string]string{}}
	for _, arg := range args {
		key, value, given := strings.Cut(arg, "=")
		switch {
		case !given:
			names = append(names, key)
		case key == "name":
			called = value
		case key == "memory":
			shape.Capacity.MemoryBytes = size(value)
		case key == "cpu":
			shape.Capacity.CPU = int64(number(value))
		case key == "backup":
			shape.Attributes = map[string]string{model.AttributeBackup: value}
		case key == "arch":
			shape.Attributes = map[string]string{"os": "linux", "arch": value}
		case key == "ports":
			low, high, _ := strings.Cut(value, "-")
			shape.PortMin, shape.PortMax = number(low), number(high)
		default:
			shape.Labels[key] = value
		}
	}
	for _, name := range names {
		id := model.NodeID(name)
		w.nodes = append(w.nodes, id)
		w.agents[id] = &agentSim{name: called, running: map[model.InstanceID]model.InstanceStatus{}}
		w.live[id] = fsm.Liveness{Gossip: fsm.GossipAlive}
		w.register(id, shape)
	}
	return ""
}

func (w *world) drainCommand(args []string) *fsm.DrainStart {
	c := &fsm.DrainStart{ID: model.DrainID(args[0]), Options: model.DrainOptions{Deadline: model.Hour}}
	for _, arg := range args[1:] {
		key, value, given := strings.Cut(arg, "=")
		switch {
		case key == "deadline":
			c.Options.Deadline = duration(value)
		case key == "parallel":
			c.Options.MaxParallelNodes = number(value)
		case key == "downtime":
			c.Options.AcceptDowntime = append(c.Options.AcceptDowntime, value)
		case key == "force":
			c.Options.Force = true
		case key == "force_at_deadline":
			c.Options.ForceAtDeadline = true
		case key == "ignore_system":
			c.Options.IgnoreSystem = true
		case key == "policy":
			c.Options.Policy = value
		case !given:
			c.Nodes = append(c.Nodes, key)
		}
	}
	return c
}

func (w *world) cmdDrain(args []string) string {
	c := w.drainCommand(args)
	out := w.must(w.apply("cli:ann", c))
	if d, ok := w.state.Drains.Get(c.ID); ok && out == "" {
		for _, n := range d.Nodes {
			out += fmt.Sprintf("started %s\n", n.Node)
		}
		for _, r := range d.Rejected {
			out += fmt.Sprintf("rejected %s: %s\n", r.Node, r.Code)
		}
	}
	return out
}
