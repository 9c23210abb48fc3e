package model

import (
	"slices"
	"strings"
	"testing"
)

// TestContainerIsRefused: mistakes in a container are refused at their key.
func TestContainerIsRefused(t *testing.T) {
	digest := "sha256:" + strings.Repeat("0a", 32)
	tests := []struct {
		name   string
		change func(g *GroupSpec)
		key    string
		says   string // part of the refusal; "" means that the spec is accepted
	}{
		{"a name alone", func(g *GroupSpec) { g.Container.Image = "redis" }, "", ""},
		{"all parts of a name", func(g *GroupSpec) { g.Container.Image = "reg.lan:5000/a/b__c-d.e:V1.2-x@" + digest }, "",
			""},
		{"no image", func(g *GroupSpec) { g.Container.Image = "" }, "group/g/container/image", "no image"},
		{"capitals", func(g *GroupSpec) { g.Container.Image = "reg/Web" }, "group/g/container/image", "not the name"},
		{"empty tag", func(g *GroupSpec) { g.Container.Image = "web:" }, "group/g/container/image", "not the name"},
		{"two digests", func(g *GroupSpec) { g.Container.Image = "web@" + digest + "@" + digest },
			"group/g/container/image", "not a digest"},
		{"short digest", func(g *GroupSpec) { g.Container.Image = "web@" + digest[:70] }, "group/g/container/image",
			"not a digest"},
		{"long name", func(g *GroupSpec) { g.Container.Image = strings.Repeat("a", 401) }, "group/g/container/image",
			"401 bytes"},
		{"platform", func(g *GroupSpec) { g.Container.Platforms = []string{"linux"} }, "group/g/container/platforms",
			`platform "linux"`},
		{"both", func(g *GroupSpec) { g.Exec.Command = "/bin/x" }, "group/g/container", "both exec and container"},
		{"args of an exec", func(g *GroupSpec) { g.Exec.Args = []string{"x"} }, "group/g/container",
			"both exec and container"},
		{"neither", func(g *GroupSpec) { g.Container = nil }, "group/g", "no command and no image"},
		{"env", func(g *GroupSpec) { g.Env = map[string]string{"OUTSPAN_X": ""} }, "group/g/env", "are the agent's"},
		{"relative tmpfs", func(g *GroupSpec) { g.Container.Tmpfs = []string{"run"} }, "group/g/container/tmpfs",
			"given twice"},
		{"tmpfs twice", func(g *GroupSpec) { g.Container.Tmpfs = []string{"/run", "/run"} }, "group/g/container/tmpfs",
			"given twice"},
		{"mount", func(g *GroupSpec) { g.Container.Mounts = []MountSpec{{"/dev/fuse", "/dev/fuse", false}} }, "", ""},
		{"mount on proc", func(g *GroupSpec) { g.Container.Mounts = []MountSpec{{"/proc/x", "/etc", false}} },
			"group/g/container/mount/\x00", "outside /proc"},
		{"mount of nothing", func(g *GroupSpec) { g.Container.Mounts = []MountSpec{{"/x", "", false}} },
			"group/g/container/mount/\x00/source", "absolute path of the node"},
		{"mount on tmpfs", func(g *GroupSpec) {
			g.Container.Tmpfs, g.Container.Mounts = []string{"/x"}, []MountSpec{{"/x", "/etc", false}}
		}, "group/g/container/mount/\x00", "is taken"},
		{"mount on a volume", func(g *GroupSpec) {
			g.Volumes = []VolumeSpec{{"data", VolumeLocal, "/x"}}
			g.Container.Mounts = []MountSpec{{"/x", "/etc", false}}
		}, "group/g/volume/data/path", "mounts something else"},
		{"capability", func(g *GroupSpec) { g.Container.CapAdd = []string{"cap_sys_time"} }, "", ""},
		{"all but", func(g *GroupSpec) { g.Container.CapDrop = []string{"all"} }, "", ""},
		{"privileged", func(g *GroupSpec) { g.Container.CapAdd = []string{"ALL"} }, "group/g/container/cap_add",
			"no capability"},
		{"typo", func(g *GroupSpec) { g.Container.CapDrop = []string{"CHWN"} }, "group/g/container/cap_drop",
			`did you mean "CHOWN"?`},
		{"bridge", func(g *GroupSpec) {
			g.Container.Network, g.Ports = NetworkBridge, []PortSpec{{Name: "http", To: 80}, {Name: "admin", Static: 80, To: 80}}
		}, "", ""},
		{"network", func(g *GroupSpec) { g.Container.Network = "none" }, "group/g/container/network", "host or bridge"},
		{"port inside the node's network", func(g *GroupSpec) {
			g.Container.Network, g.Ports = NetworkHost, []PortSpec{{Name: "http", To: 80}}
		}, "group/g/port/http/to", `network = "bridge"`},
		{"port inside a program", func(g *GroupSpec) {
			g.Container, g.Exec.Command, g.Ports = nil, "/bin/x", []PortSpec{{Name: "http", To: 80}}
		}, "group/g/port/http/to", "the group has none"},
		{"high port inside", func(g *GroupSpec) {
			g.Container.Network, g.Ports = NetworkBridge, []PortSpec{{Name: "http", To: 65536}}
		}, "group/g/port/http/to", "1 to 65535"},
		{"shm", func(g *GroupSpec) { g.Container.ShmBytes = 1 }, "group/g/container/shm", "4 KiB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := GroupSpec{Name: "g", Count: 1, Container: &ContainerSpec{Image: "web:1"}}
			tt.change(&g)
			spec := JobSpec{Name: "j", Groups: []GroupSpec{g}}.Expand()
			refusal := spec.Check()
			switch {
			case tt.says == "" && refusal != nil:
				t.Fatalf("refused: %v", refusal)
			case tt.says != "" && (refusal == nil || !strings.Contains(refusal.Message+refusal.Hint, tt.says)):
				t.Fatalf("got %v, want a refusal that says %s", refusal, tt.says)
			}
			if refusal != nil && refusal.Code != CodeInvalid {
				t.Errorf("code %s", refusal.Code)
			}
			if refusal != nil && !strings.Contains(tt.key, "\x00") && refusal.Key != tt.key {
				t.Errorf("the mistake is at %q, want %q", refusal.Key, tt.key)
			}
		})
	}
}

// A group's digest decides whether its instances are replaced: another digest of the image replaces them, but platforms
// that became known do not.
func TestDigestOfAContainer(t *testing.T) {
	with := func(c ContainerSpec) string {
		g := GroupSpec{Name: "g", Container: &c}
		return g.Digest()
	}
	a, b := "web@sha256:"+strings.Repeat("a", 64), "web@sha256:"+strings.Repeat("b", 64)
	if with(ContainerSpec{Image: a}) == with(ContainerSpec{Image: b}) {
		t.Error("images with different digests make no difference")
	}
	expanded := ContainerSpec{Image: a, Network: NetworkHost}.expand()
	if with(expanded) != with(ContainerSpec{Image: a}.expand()) {
		t.Error("the default network, written out, changes the digest")
	}
	if with(ContainerSpec{Image: a, Network: NetworkBridge}) == with(ContainerSpec{Image: a}) {
		t.Error("the network does not change the digest")
	}
	if with(ContainerSpec{Image: a}) != with(ContainerSpec{Image: a, Platforms: []string{"linux/amd64"}}) {
		t.Error("platforms make a difference")
	}
	if c := (ContainerSpec{Image: a}); c.ImageName() != "web" || c.ImageDigest() != a[4:] {
		t.Errorf("name %q, digest %q", c.ImageName(), c.ImageDigest())
	}
}

func TestPlatforms(t *testing.T) {
	c := ContainerSpec{Platforms: []string{"linux/amd64", "linux/arm/v7"}}
	for node, want := range map[[2]string]bool{
		{"linux", "amd64"}: true, {"linux", "arm"}: true, {"linux", "arm64"}: false, {"darwin", "amd64"}: false,
		{"", ""}: true,
	} {
		if got := c.RunsOn(node[0], node[1]); got != want {
			t.Errorf("RunsOn(%q) = %v", node, got)
		}
	}
	if got := KeptPlatforms([]string{"linux/arm64/v8", "unknown/unknown/", "A", "linux/arm64/v8"}); !slices.Equal(got,
		[]string{"linux/arm64/v8"}) {
		t.Errorf("kept %q", got)
	}
}

// TestUsersOfAContainer: whoever may run programs only as some user can't become root by a container.
func TestUsersOfAContainer(t *testing.T) {
	for _, tt := range []struct {
		group GroupSpec
		want  []string
	}{
		{GroupSpec{Exec: ExecSpec{User: "web"}}, []string{"web"}},
		{GroupSpec{}, []string{""}},
		{GroupSpec{Container: &ContainerSpec{User: "1000:1000"}}, []string{"1000:1000"}},
		{GroupSpec{Container: &ContainerSpec{User: "web"}}, []string{"web", "root"}},
		{GroupSpec{Container: &ContainerSpec{User: "1000:disk"}}, []string{"1000:disk", "root"}},
		{GroupSpec{Container: &ContainerSpec{}}, []string{"", "root"}},
		{GroupSpec{Container: &ContainerSpec{User: "0:1000"}}, []string{"0:1000", "root"}},
		{GroupSpec{Container: &ContainerSpec{User: "7", Mounts: []MountSpec{{}}}}, []string{"7", "root"}},
		{GroupSpec{Container: &ContainerSpec{User: "7", CapAdd: []string{"SYS_ADMIN"}}}, []string{"7", "root"}},
	} {
		if got := tt.group.Users(); !slices.Equal(got, tt.want) {
			t.Errorf("%+v: users %q, want %q", tt.group, got, tt.want)
		}
	}
}
