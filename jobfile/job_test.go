package jobfile_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/jobfile"
	"github.com/outspan/outspan/model"
)

const webJob = `
job "web" {
  class = "production"
  group "http" {
    count = 3
    role  = "service"
    exec {
      command = "/opt/web/bin/web"
      args    = ["--listen", ":${port.http}", "--slot", "${slot}"]
      user    = "web"
    }
    env = { LOG = "info" }
    resources {
      cpu    = 250
      memory = "128MiB"
    }
    port "http" {}
    service "web" {
      port   = "http"
      expose = 8080
    }
    check "alive" {
      type     = "http"
      port     = "http"
      path     = "/healthz"
      interval = "2s"
    }
    stop {
      signal = "SIGTERM"
      grace  = "10s"
    }
    update {
      max_surge   = 1
      auto_revert = true
    }
    budget {
      min_ready = 2
      rate {
        max    = 1
        window = "1m"
      }
    }
    constraint {
      attribute = "node.label.disk"
      operator  = "="
      value     = "ssd"
    }
    spread { attribute = "node.label.rack" }
    toleration { not_ready = "30s" }
  }
}
`

func TestParseJob(t *testing.T) {
	got, err := jobfile.Parse("web.hcl", []byte(webJob))
	if err != nil {
		t.Fatal(err)
	}
	notReady := 30 * model.Second
	want := model.JobSpec{Name: "web", Class: "production", Groups: []model.GroupSpec{{
		Name: "http", Count: 3, Role: "service",
		Exec: model.ExecSpec{Command: "/opt/web/bin/web",
			Args: []string{"--listen", ":${port.http}", "--slot", "${slot}"}, User: "web"},
		Env:       map[string]string{"LOG": "info"},
		Resources: model.Resources{CPU: 250, MemoryBytes: 128 << 20},
		Ports:     []model.PortSpec{{Name: "http"}},
		Services:  []model.ServiceSpec{{Name: "web", Port: "http", Expose: 8080}},
		Checks: []model.CheckSpec{
			{Name: "alive", Kind: "http", Port: "http", Path: "/healthz", Interval: 2 * model.Second}},
		Stop:        model.StopSpec{Signal: "SIGTERM", Grace: 10 * model.Second},
		Update:      model.UpdateSpec{MaxSurge: 1, AutoRevert: true},
		Budget:      &model.BudgetSpec{MinReady: &model.Amount{N: 2}, Rate: &model.RateSpec{Max: 1, Window: model.Minute}},
		Constraints: []model.Constraint{{Attribute: "node.label.disk", Operator: "=", Value: "ssd"}},
		Spreads:     []model.Spread{{Attribute: "node.label.rack"}},
		Toleration:  model.TolerationSpec{NotReady: &notReady},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("job differs (-want +got):\n%s", diff)
	}
}

// Each mistake is reported with its place and, if possible, with the intended word. Values are never converted, and
// unknown keys are never ignored.
func TestParseJobMistakes(t *testing.T) {
	group := func(lines string) string {
		return "job \"web\" {\n  group \"http\" {\n    exec { command = \"/bin/true\" }\n" + lines + "\n  }\n}\n"
	}
	container := func(lines string) string {
		return "job \"web\" {\n  group \"http\" {\n    container {\n      " + lines + "\n    }\n  }\n}\n"
	}
	tests := []struct{ name, src, code, want string }{
		{"typo in a key", group("    cuont = 2"), "invalid",
			`web.hcl:4,5: Unsupported argument: An argument named "cuont" is not expected here. Did you mean "count"?`},
		{"a bare word", group("    count = yes"), "invalid",
			`web.hcl:4,13: Bare word: write text in quotes, a switch as true or false.`},
		{"typo in a block", group("    resuorces { cpu = 1 }"), "invalid", `Did you mean "resources"?`},
		{"memory without unit", group("    resources { memory = 128 }"), "invalid",
			"web.hcl:4,26: Wrong type: memory takes a text in quotes"},
		{"wrong unit", group("    resources { memory = \"128 MegaByte\" }"), "invalid", "unknown unit"},
		{"count in quotes", group("    count = \"3\""), "invalid", "count takes a number"},
		{"fraction", group("    count = 1.5"), "invalid", "whole number"},
		{"too large", group("    count = 2147483648"), "invalid", "whole number"},
		{"negative limit", "job \"web\" {\n  group \"http\" {\n    exec {\n      command = \"/bin/true\"\n" +
			"      rlimits = { nofile = -1 }\n    }\n  }\n}\n", "invalid",
			"The value of nofile in rlimits must be a whole number that is not negative."},
		{"negative reschedule", group("    reschedule { attempts = -1 }"), "invalid",
			"web.hcl:4,5: job web, group http: reschedule must not have negative values"},
		{"exclusive in quotes", group("    exclusive = \"1m\""), "invalid", `exclusive { lease = "1m" }`},
		{"a lease and none", group("    exclusive = false\n    exclusive { lease = \"1m\" }"), "invalid",
			"exclusive is false, and there is also a block exclusive"},
		{"a lease without unit", group("    exclusive { lease = 60 }"), "invalid", "lease takes a text"},
		{"count -1", group("    count = -1"), "invalid", "web.hcl:4,13: job web, group http: count is -1"},
		{"duration without unit", group("    stop { grace = 10 }"), "invalid", "grace takes a text"},
		{"wrong duration unit", group("    stop { grace = \"10 parsecs\" }"), "invalid", "unknown unit"},
		{"unknown port in an expression", group("    env = { P = \"${port.web}\" }"), "invalid",
			`Unknown port: The group has no port "web"; write: port "web" {}.`},
		{"another port in an expression", group("    port \"http\" {}\n    env = { P = \"${port.web}\" }"), "invalid",
			`The group has no port "web"; its ports are: http.`},
		{"environment of the server", group("    env = { P = \"${env.HOME}\" }"), "invalid", "Unknown variable"},
		{"a variable for a shell", group("    port \"http\" {}\n    env = { P = \"a ${OUTSPAN_IP}\" }"), "invalid",
			`web.hcl:5,22: Unknown variable in "${...}": OUTSPAN_IP is not filled in here, only node.id, node.name, ` +
				`port.http, slot. To leave it to a shell, write $OUTSPAN_IP or $${OUTSPAN_IP}.`},
		{"a variable alone", group("    env = { P = \"${IP}\" }"), "invalid", "IP is not filled in here, only node.id"},
		{"an unknown part", group("    env = { P = \"${node.ip}\" }"), "invalid",
			`Unknown variable in "${...}": node.ip is not filled in here, only node.id, node.name, slot.`},
		{"a check without a name", group("    check { type = \"tcp\" }"), "invalid",
			`web.hcl:4,11: Missing name: write check "NAME" { ... }.`},
		{"function call", group("    env = { P = file(\"/etc/passwd\") }"), "invalid", "Function calls not allowed"},
		{"repeated port", group("    port \"a\" {}\n    port \"a\" {}"), "invalid",
			`There is already a block "port" named "a"`},
		{"missing command", "job \"web\" {\n  group \"http\" {\n    exec {}\n  }\n}\n", "invalid", `"command" is required`},
		{"missing exec", "job \"web\" {\n  group \"http\" {}\n}\n", "invalid",
			"web.hcl:2,3: job web, group http: the group has no command and no image: exec or container is needed"},
		{"exec and container", group("    container { image = \"web\" }"), "invalid",
			"web.hcl:4,5: job web, group http: the group has both exec and container"},
		{"image with a URL", container("image = \"https://r/web\""), "invalid",
			"web.hcl:4,15: job web, group http: image \"https://r/web\" is a URL"},
		{"typo in a container", container("image = \"web\"\n      usr = \"web\""), "invalid", `Did you mean "user"?`},
		{"capability", container("image = \"web\"\n      cap_add = [\"cap_net_admn\"]"), "invalid",
			"web.hcl:5,17: job web, group http: cap_add: \"NET_ADMN\" is no capability"},
		{"mount without source", container("image = \"web\"\n      mount \"/etc/web\" {}"), "invalid",
			`"source" is required`},
		{"mount of a relative path", container("image = \"web\"\n      mount \"/a\" { source = \"b\" }"), "invalid",
			"web.hcl:5,29: job web, group http: mount /a: source is \"b\""},
		{"no group", "job \"web\" {}\n", "invalid", "0 groups"},
		{"shared budget", group("    budget = 3"), "invalid", "budget takes a name"},
		{"shared budgets", group("    budget = [\"a\", 3]"), "invalid", "Every element of budget must be a text"},
		{"shared budget twice", group("    budget = [\"a\", \"a\"]"), "invalid", `budget "a" is given twice`},
		{"hook of another name", group("    hook \"before_start\" { exec = [\"/bin/x\"] }"), "invalid",
			`hook "before_start" is unknown`},
		{"a signal of peers that would end the program", group("    peers { signal = \"SIGKILL\" }"), "invalid",
			`peers.signal "SIGKILL" can't be sent`},
		{"hook without exec", group("    hook \"before_stop\" {}"), "invalid", `"exec" is required`},
		{"hook that fails oddly",
			group("    hook \"before_stop\" {\n      exec = [\"/bin/x\"]\n      on_failure = \"ignore\"\n    }"), "invalid",
			"it must be abort or continue"},
		{"hook with a typo",
			group("    hook \"before_stop\" {\n      exec = [\"/bin/x\"]\n      on_failur = \"abort\"\n    }"), "invalid",
			`Did you mean "on_failure"?`},
		{"hook twice",
			group("    hook \"before_stop\" { exec = [\"/bin/x\"] }\n    hook \"before_stop\" { exec = [\"/bin/y\"] }"),
			"invalid", `There is already a block "hook"`},
		{"gate on a fact without facts", group("    eviction {\n      when = [\"self.ready\"]\n    }"), "invalid",
			`web.hcl:5,14: job web, group http: eviction.when: "self.ready" rests on facts, and the group reports none`},
		{"role without facts", group("    role = \"quorum\""), "invalid", "rests on facts, and the group reports none"},
		{"restart_after of no time",
			group("    check \"a\" {\n      type = \"exec\"\n      exec = [\"/bin/x\"]\n      restart_after = \"-1s\"\n    }"),
			"invalid", "web.hcl:7,23: Not a duration: restart_after"},
		{"restart_after forever",
			group(
				"    check \"a\" {\n      type = \"exec\"\n      exec = [\"/bin/x\"]\n      restart_after = \"forever\"\n    }"),
			"invalid", "leave it out for no restart"},
		{"role_check of nothing", group("    role_check {}"), "invalid",
			"web.hcl:4,5: job web, group http: role_check needs either exec or port"},
		{"role_check of two things",
			group("    port \"a\" {}\n    role_check {\n      exec = [\"/bin/x\"]\n      port = \"a\"\n    }"), "invalid",
			"role_check needs either exec or port"},
		{"role_check of no port", group("    role_check { port = \"a\" }"), "invalid", `role_check: there is no port "a"`},
		{"role_check too often", group("    role_check {\n      exec = [\"/bin/x\"]\n      interval = \"1ms\"\n    }"),
			"invalid", "interval must be 100ms"},
		{"no such gate",
			group("    eviction { when = [\"self.drained\", \"group.happy\"] }\n    role_check { exec = [\"/bin/x\"] }"),
			"invalid", `eviction.when: "group.happy" is no gate`},
		{"gates in a text", group("    eviction { when = \"self.drained\" }"), "invalid", "when takes a list of texts"},
		{"when without gates", group("    eviction { mode = \"when\" }"), "invalid",
			`eviction.mode is "when" and there are no gates`},
		{"gates that nobody asks",
			group("    eviction {\n      mode = \"always\"\n      when = [\"group.ready >= 2\"]\n    }"), "invalid",
			`eviction.when has gates and the mode is "always"`},
		{"a gate of replacements", group("    eviction { when = [\"old.confirmed_stopped\"] }"), "invalid",
			"it belongs in replacement.when"},
		{"replicated volume", group("    volume \"d\" {\n      kind = \"replicated\"\n      path = \"/d\"\n    }"), "invalid",
			"the group has no role_check"},
		{"volume over a system directory", group("    volume \"d\" { path = \"/proc/x\" }"), "invalid",
			"it must be absolute and clean"},
		{"unclean volume path", group("    volume \"d\" { path = \"/data/../etc\" }"), "invalid",
			"it must be absolute and clean"},
		{"volumes inside each other", group("    volume \"a\" { path = \"/d\" }\n    volume \"b\" { path = \"/d/b\" }"),
			"invalid", "overlaps that of volume a"},
		{"unknown role", group("    role = \"servce\""), "invalid",
			`web.hcl:4,12: job web, group http: role "servce" is unknown`},
		{"unknown mode", group("    eviction {\n      mode = \"perhaps\"\n    }"), "invalid",
			"web.hcl:5,14: job web, group http: eviction.mode"},
		{"unknown operator", group("    constraint {\n      attribute = \"node.id\"\n      operator = \"==\"\n    }"),
			"invalid", "web.hcl:4,5: job web, group http: constraint"},
		{"unknown type of a check", group("    check \"a\" {\n      type = \"htp\"\n    }"), "invalid",
			"web.hcl:5,14: job web, group http: check a: type"},
		{"a name with a space", "job \"my web\" {\n  group \"http\" {\n    exec { command = \"/bin/true\" }\n  }\n}\n",
			"invalid", `web.hcl:1,1: job name "my web"`},
		{"a key of another block", group("    exec { memory = \"1MiB\" }"), "invalid", "Duplicate block"},
		{"a key with the keys that there are", group("    stop { timeout = \"10s\" }"), "invalid",
			`An argument named "timeout" is not expected here. What may stand here: drain_delay, grace, signal.`},
		{"an expression without quotes", group("    env = { P = ${port.web} }"), "invalid",
			`web.hcl:4,17: Not in quotes: write "${...}" in quotes.`},
		{"a block on one line", group("    stop { grace = \"1s\"\n }"), "invalid",
			"web.hcl:4,24: Not closed on its line: a block on one line has one key and its closing brace; " +
				"write one key a line."},
		{"no closing quote", group("    role = \"service"), "invalid",
			"web.hcl:4,20: No closing quote: write the closing quote on the same line."},
		{"deep nesting", "x = " + strings.Repeat("[", 65_000), "invalid", "Nested too deeply"},
		{"operator run", "x = " + strings.Repeat("!", 65_000) + "true", "invalid", "Nested too deeply"},
		{"operators in brackets", "x = (\n" + strings.Repeat(strings.Repeat("!", 64)+"\n", 4000), "invalid",
			"Nested too deeply"},
		{"operators after comments", "x = [\n" + strings.Repeat(strings.Repeat("-", 64)+"# c\n", 3500), "invalid",
			"Nested too deeply"},
		{"operators in a template", "x = \"${(\n" + strings.Repeat(strings.Repeat("!", 60)+"\n", 4000), "invalid",
			"Nested too deeply"},
		{"comparisons", "x = (0" + strings.Repeat("<0", 65_000) + ")", "invalid", "Nested too deeply"},
		{"loops", "x = [for a in [0, 0] : [for b in [0, 0] : 0]]", "invalid", "No loops"},
		{"loop after a line", "x = {\n for a in [0, 0] : a => 0 }", "invalid", "No loops"},
		{"exponent", "x = \"x${1e600000000}\"", "invalid", "Number too long"},
		{"many digits", "x = " + strings.Repeat("9", 100_000), "invalid", "Number too long"},
		{"too large", strings.Repeat("#", 300<<10), "invalid", "File too large"},
		{"garbage", "\x00\xff{", "invalid", "web.hcl:1,"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := jobfile.Parse("web.hcl", []byte(test.src))
			var refusal *model.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("got error %v, want a refusal", err)
			}
			if string(refusal.Code) != test.code || !strings.Contains(refusal.Message, test.want) {
				t.Errorf("got %s: %s\nwant %s: ...%s...", refusal.Code, refusal.Message, test.code, test.want)
			}
		})
	}
}

// The role check, the hooks and the rules for eviction and replacement are read. Keys that the file does not set have
// the role's defaults.
func TestParseRole(t *testing.T) {
	const src = `
job "store" {
  group "db" {
    role  = "sharded-data"
    count = 3
    exec { command = "/bin/db" }
    port "http" {}
    role_check {
      port     = "http"
      path     = "/facts"
      interval = "2s"
    }
    hook "before_stop" {
      exec       = ["/bin/clean-out", "${slot}"]
      timeout    = "10m"
      on_failure = "continue"
    }
    hook "after_start" { exec = ["/bin/join"] }
    eviction { when = ["self.drained", "group.ready >= 3"] }
    replacement { mode = "always" }
  }
}
`
	spec, err := jobfile.Parse("store.hcl", []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	g := spec.Expand().Groups[0]
	unreachable := 5 * model.Minute
	for _, part := range []struct {
		name      string
		want, got any
	}{
		{"role_check", &model.RoleCheckSpec{Port: "http", Path: "/facts", Interval: 2 * model.Second,
			Timeout: 2 * model.Second}, g.RoleCheck},
		{"hooks", []model.HookSpec{
			{Name: model.HookBeforeStop, Exec: []string{"/bin/clean-out", "${slot}"}, Timeout: 10 * model.Minute,
				OnFailure: model.HookContinue},
			{Name: model.HookAfterStart, Exec: []string{"/bin/join"}, Timeout: 30 * model.Second, OnFailure: model.HookAbort},
		}, g.Hooks},
		{"eviction", model.EvictionSpec{Mode: model.ModeWhen, Order: model.OrderSurge, SurgeWait: model.WaitReady,
			When: []string{"self.drained", "group.ready >= 3"}}, g.Eviction},
		{"replacement", model.ReplacementSpec{Mode: model.ModeAlways, Identity: "new", Data: "empty"}, g.Replacement},
		{"toleration", model.TolerationSpec{Unreachable: &unreachable, NotReady: &unreachable}, g.Toleration},
	} {
		if diff := cmp.Diff(part.want, part.got); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", part.name, diff)
		}
	}
}

// All mistakes are reported at once, not only the first.
func TestParseJobReportsEveryMistake(t *testing.T) {
	src := "job \"web\" {\n  colour = \"x\"\n  group \"http\" {\n    cuont = 2\n    exec { command = 1 }\n  }\n}\n"
	_, err := jobfile.Parse("web.hcl", []byte(src))
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three lines, got: %v", err)
	}
}

// If a file is not a job file, the error's hint says what to do instead.
func TestFilesOfAnotherKind(t *testing.T) {
	hint := func(err error) string {
		var refusal *model.Error
		if !errors.As(err, &refusal) {
			t.Fatalf("got error %v, want a refusal", err)
		}
		return refusal.Hint
	}
	for src, want := range map[string]string{
		"name = \"s1\"\nserver {}\n":            "outspan config validate web.hcl",
		"services:\n  web:\n    image: nginx\n": "outspan job init",
		"":                                      "outspan job init",
		"{\"job\": {}}":                         "outspan job init",
		"group \"a\" {}\n":                      `put it into: job "NAME" { ... }`,
	} {
		_, err := jobfile.Parse("web.hcl", []byte(src))
		if got := hint(err); !strings.Contains(got, want) {
			t.Errorf("%q: got hint %q, want %q", src, got, want)
		}
	}
}
