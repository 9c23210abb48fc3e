package jobfile_test

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/jobfile"
)

// A word of compose, or a key in the wrong block, gets a hint that says what to write, as attribute and as block.
func TestWordsOfCompose(t *testing.T) {
	for _, tt := range []struct{ group, container, want string }{
		{"", `ports = ["8080:80"]`, `"ports" is not expected here. Write port "NAME" { static = 8080 } in the group`},
		{"", `port "http" {}`, `Write port "NAME" { static = 8080 } in the group`},
		{"", `volumes = ["data:/data"]`, `Write volume "NAME" { path = "/data" } in the group, or in container`},
		{"", `environment = { A = "b" }`, `Write env = { NAME = "value" } in the group.`},
		{"", "environment {}", `Write env = { NAME = "value" } in the group.`},
		{"", `restart = "always"`, "A program is restarted without it; restart { } in the group says how often."},
		{`ports = ["8080:80"]`, "", `"ports" is not expected here. Write port "NAME" { static = 8080 } in the group`},
		{`volumes = ["data:/data"]`, "", `Write volume "NAME" { path = "/data" } in the group`},
		{`environment = { A = "b" }`, "", `Write env = { NAME = "value" } in the group.`},
		{`restart = "always"`, "", "A program is restarted without it"},
		{`command = "serve"`, "", "It belongs into container { }, or into exec { } for a program of the node."},
		{`image = "nginx"`, "", "It belongs into container { }."},
	} {
		src := "job \"web\" {\n  group \"http\" {\n" + tt.group + "\n    container {\n      image = \"nginx\"\n" +
			tt.container + "\n    }\n  }\n}\n"
		_, err := jobfile.Parse("web.hcl", []byte(src))
		if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "Did you mean") ||
			strings.Contains(err.Error(), "What may stand here") {
			t.Errorf("%s%s: %v, want %s", tt.group, tt.container, err, tt.want)
		}
	}
	// The same word in both blocks is named twice.
	_, twice := jobfile.Parse("web.hcl", []byte(`job "web" {
  group "http" {
    restart = "always"
    container {
      image   = "nginx"
      restart = "always"
    }
  }
}
`))
	if twice == nil || !strings.Contains(twice.Error(), "web.hcl:3,5: ") ||
		!strings.Contains(twice.Error(), "web.hcl:6,7: ") {
		t.Error(twice)
	}
	// A block inside one with hints has none of them.
	_, err := jobfile.Parse("web.hcl", []byte(`job "web" {
  group "http" {
    exec { command = "/bin/web" }
    stop { ports = 1 }
  }
}
`))
	if err == nil || !strings.Contains(err.Error(), "What may stand here: drain_delay, grace, signal.") {
		t.Error(err)
	}
}
