package image

import (
	"encoding/json"
	"strings"

	"github.com/containerd/containerd/v2/contrib/seccomp"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Defaults is what an image says about its program.
type Defaults struct {
	Entrypoint []string
	Cmd        []string
	Env        []string // KEY=value
	User       string
	Dir        string
	StopSignal string // such as SIGQUIT or 3; "" = SIGTERM
}

// Overrides is what a job says about it. Nil and "" leave the image's.
type Overrides struct {
	Entrypoint []string
	Args       []string
	Env        map[string]string
	User       string
	Dir        string
	StopSignal string
}

// Program is what a container runs.
type Program struct {
	Argv       []string // may be empty: neither the image nor the job names a program
	Env        map[string]string
	User       string
	Dir        string
	StopSignal string
}

// Merge applies o to the image's defaults, as docker does: with an entrypoint of the job, the image's arguments go too.
func (d Defaults) Merge(o Overrides) Program {
	p := Program{Env: make(map[string]string, len(d.Env)+len(o.Env)), User: first(o.User, d.User),
		Dir: first(o.Dir, d.Dir, "/"), StopSignal: first(o.StopSignal, d.StopSignal)}
	entrypoint, args := d.Entrypoint, d.Cmd
	if o.Entrypoint != nil {
		entrypoint, args = o.Entrypoint, nil
	}
	if o.Args != nil {
		args = o.Args
	}
	p.Argv = append(append([]string{}, entrypoint...), args...)
	for _, e := range d.Env {
		if k, v, ok := strings.Cut(e, "="); ok && k != "" {
			p.Env[k] = v
		}
	}
	for k, v := range o.Env {
		p.Env[k] = v
	}
	return p
}

func first(list ...string) string {
	for _, s := range list {
		if s != "" {
			return s
		}
	}
	return ""
}

// Seccomp returns the default seccomp profile for a container with these capabilities, as JSON for driver.Config.
func Seccomp(capabilities []string) ([]byte, error) {
	return json.Marshal(seccomp.DefaultProfile(&specs.Spec{
		Process: &specs.Process{Capabilities: &specs.LinuxCapabilities{Bounding: capabilities}}, Linux: &specs.Linux{},
	}))
}
