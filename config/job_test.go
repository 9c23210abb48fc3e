package config_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/fsm"
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
	got, err := config.ParseJob("web.hcl", []byte(webJob))
	if err != nil {
		t.Fatal(err)
	}
	notReady := 30 * fsm.Second
	want := fsm.JobSpec{Name: "web", Class: "production", Groups: []fsm.GroupSpec{{
		Name: "http", Count: 3, Role: "service",
		Exec:        fsm.ExecSpec{Command: "/opt/web/bin/web", Args: []string{"--listen", ":${port.http}", "--slot", "${slot}"}, User: "web"},
		Env:         map[string]string{"LOG": "info"},
		Resources:   fsm.Resources{CPU: 250, MemoryBytes: 128 << 20},
		Ports:       []fsm.PortSpec{{Name: "http"}},
		Services:    []fsm.ServiceSpec{{Name: "web", Port: "http", Expose: 8080}},
		Checks:      []fsm.CheckSpec{{Name: "alive", Kind: "http", Port: "http", Path: "/healthz", Interval: 2 * fsm.Second}},
		Stop:        fsm.StopSpec{Signal: "SIGTERM", Grace: 10 * fsm.Second},
		Update:      fsm.UpdateSpec{MaxSurge: 1, AutoRevert: true},
		Budget:      &fsm.BudgetSpec{MinReady: &fsm.Amount{N: 2}, Rate: &fsm.RateSpec{Max: 1, Window: fsm.Minute}},
		Constraints: []fsm.Constraint{{Attribute: "node.label.disk", Operator: "=", Value: "ssd"}},
		Spreads:     []fsm.Spread{{Attribute: "node.label.rack"}},
		Toleration:  fsm.TolerationSpec{NotReady: &notReady},
	}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("job differs (-want +got):\n%s", diff)
	}
}

// Each mistake names its place and, where it can, the word that was meant; nothing is converted or ignored.
func TestParseJobMistakes(t *testing.T) {
	group := func(lines string) string {
		return "job \"web\" {\n  group \"http\" {\n    exec { command = \"/bin/true\" }\n" + lines + "\n  }\n}\n"
	}
	tests := []struct{ name, src, code, want string }{
		{"typo in a key", group("    cuont = 2"), "invalid", `web.hcl:4,5: Unsupported argument: An argument named "cuont" is not expected here. Did you mean "count"?`},
		{"typo in a block", group("    resuorces { cpu = 1 }"), "invalid", `Did you mean "resources"?`},
		{"memory without unit", group("    resources { memory = 128 }"), "invalid", "web.hcl:4,26: Wrong type: memory takes a text in quotes"},
		{"wrong unit", group("    resources { memory = \"128 MegaByte\" }"), "invalid", "unknown unit"},
		{"count in quotes", group("    count = \"3\""), "invalid", "count takes a number"},
		{"fraction", group("    count = 1.5"), "invalid", "whole number"},
		{"count -1", group("    count = -1"), "invalid", "count is -1"},
		{"duration without unit", group("    stop { grace = 10 }"), "invalid", "grace takes a text"},
		{"wrong duration unit", group("    stop { grace = \"10 parsecs\" }"), "invalid", "unknown unit"},
		{"unknown port in an expression", group("    env = { P = \"${port.web}\" }"), "invalid", "Unsupported attribute"},
		{"environment of the server", group("    env = { P = \"${env.HOME}\" }"), "invalid", "Unknown variable"},
		{"function call", group("    env = { P = file(\"/etc/passwd\") }"), "invalid", "Function calls not allowed"},
		{"repeated port", group("    port \"a\" {}\n    port \"a\" {}"), "invalid", `There is already a block "port" named "a"`},
		{"missing command", "job \"web\" {\n  group \"http\" {\n    exec {}\n  }\n}\n", "invalid", `"command" is required`},
		{"missing exec", "job \"web\" {\n  group \"http\" {}\n}\n", "invalid", `"exec" is needed`},
		{"no group", "job \"web\" {}\n", "invalid", "0 groups"},
		{"shared budget", group("    budget = 3"), "invalid", "budget takes a name"},
		{"shared budgets", group("    budget = [\"a\", 3]"), "invalid", "Every element of budget must be a text"},
		{"shared budget twice", group("    budget = [\"a\", \"a\"]"), "invalid", `budget "a" is given twice`},
		{"hook", group("    hook \"before_stop\" {\n      exec = [\"/bin/x\"]\n    }"), "not_supported", "not supported yet"},
		{"role", group("    role = \"quorum\""), "not_supported", "not supported yet"},
		{"replicated volume", group("    volume \"d\" {\n      kind = \"replicated\"\n      path = \"/d\"\n    }"), "not_supported", "not supported yet"},
		{"volume over a system directory", group("    volume \"d\" { path = \"/proc/x\" }"), "invalid", "it must be absolute and clean"},
		{"unclean volume path", group("    volume \"d\" { path = \"/data/../etc\" }"), "invalid", "it must be absolute and clean"},
		{"volumes inside each other", group("    volume \"a\" { path = \"/d\" }\n    volume \"b\" { path = \"/d/b\" }"), "invalid", "overlaps that of volume a"},
		{"unknown role", group("    role = \"servce\""), "invalid", `role "servce" is unknown`},
		{"deep nesting", "x = " + strings.Repeat("[", 65_000), "invalid", "Nested too deeply"},
		{"operator run", "x = " + strings.Repeat("!", 65_000) + "true", "invalid", "Nested too deeply"},
		{"too large", strings.Repeat("#", 300<<10), "invalid", "File too large"},
		{"garbage", "\x00\xff{", "invalid", "web.hcl:1,"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := config.ParseJob("web.hcl", []byte(test.src))
			var refusal *fsm.Error
			if !errors.As(err, &refusal) {
				t.Fatalf("got error %v, want a refusal", err)
			}
			if string(refusal.Code) != test.code || !strings.Contains(refusal.Message, test.want) {
				t.Errorf("got %s: %s\nwant %s: ...%s...", refusal.Code, refusal.Message, test.code, test.want)
			}
		})
	}
}

// All mistakes are reported at once, not just the first.
func TestParseJobReportsEveryMistake(t *testing.T) {
	src := "job \"web\" {\n  colour = \"x\"\n  group \"http\" {\n    cuont = 2\n    exec { command = 1 }\n  }\n}\n"
	_, err := config.ParseJob("web.hcl", []byte(src))
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three lines, got: %v", err)
	}
}

func FuzzParseJob(f *testing.F) {
	f.Add([]byte(webJob))
	f.Add([]byte("job \"a\" { group \"b\" { exec { command = \"${port.x}\" } } }"))
	f.Fuzz(func(t *testing.T, src []byte) {
		spec, err := config.ParseJob("f.hcl", src)
		var refusal *fsm.Error
		if err != nil && !errors.As(err, &refusal) {
			t.Fatalf("an error without a code: %v", err)
		}
		if err == nil && spec.Name == "" {
			t.Fatal("a job without a name was accepted")
		}
	})
}
