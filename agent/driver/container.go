package driver

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/outspan/outspan/agent/driver/oci"
	"github.com/outspan/outspan/model"
)

// Container makes an instance a container. Spec.Command and Spec.Args are then the program inside, Spec.Dir is a
// directory inside, Spec.User is a user of the image (a name or uid, or with a group USER:GROUP; "" is root), and
// Spec.Env has the environment of the image too. Spec.Binds are mounted inside, and given to the user.
type Container struct {
	Image string `cbor:"1,keyasint"` // name and digest, for people
	// Rootfs is mounted one over the other as the root; it must not be empty.
	Rootfs   []oci.Mount `cbor:"2,keyasint"`
	ReadOnly bool        `cbor:"3,keyasint,omitempty"` // nothing can be written to the root
	Tmpfs    []oci.Tmpfs `cbor:"4,keyasint,omitempty"`
	Mounts   []oci.Mount `cbor:"5,keyasint,omitempty"` // directories or files of the node
	// Names such as NET_RAW, added to the capabilities that containers have by default, or taken from them. ALL in CapDrop
	// takes all of them. The program has added ones whoever runs it.
	CapAdd   []string `cbor:"6,keyasint,omitempty"`
	CapDrop  []string `cbor:"7,keyasint,omitempty"`
	Hostname string   `cbor:"8,keyasint,omitempty"`  // "" = the instance's id, at most 64 bytes of it
	Hosts    string   `cbor:"9,keyasint,omitempty"`  // file of the node that is /etc/hosts inside; "" = the image's
	Resolv   string   `cbor:"10,keyasint,omitempty"` // file of the node that is /etc/resolv.conf inside; "" = the image's
	NetNS    string   `cbor:"11,keyasint,omitempty"` // path of a network namespace; "" = the node's network
	ShmBytes int64    `cbor:"12,keyasint,omitempty"` // size of /dev/shm; 0 = 64 MiB
}

// The smallest limits of a container. The runtime and the container's init run inside the cgroup.
const (
	MinContainerMemory = model.MinContainerMemory
	// containerThreads is added to Limits.PidsMax, which counts the program's processes and threads alone.
	containerThreads = 32
)

// validateContainer checks what needs no look at the node.
func (s Spec) validateContainer() error {
	c := s.Container
	bad := func(format string, args ...any) error { return model.Refuse(CodeInvalidSpec, format, args...) }
	switch {
	case len(c.Rootfs) == 0:
		return bad("container %s has no root file system", s.ID)
	case s.Limits.MemoryBytes != 0 && s.Limits.MemoryBytes < MinContainerMemory:
		return bad("memory cap of container %s is %d bytes; the least is %d", s.ID, s.Limits.MemoryBytes, MinContainerMemory)
	case c.ShmBytes < 0:
		return bad("/dev/shm of container %s has a negative size", s.ID)
	case len(c.Hostname) > 64 || strings.ContainsAny(c.Hostname, "/ \x00"):
		return bad("host name %q of container %s can't be set", c.Hostname, s.ID)
	}
	for _, name := range append(append([]string{}, c.CapAdd...), c.CapDrop...) {
		if !oci.Capability(name) && !strings.EqualFold(name, "ALL") {
			return bad("capability %q of container %s does not exist", name, s.ID)
		}
	}
	for _, t := range s.insideTargets() {
		if !path.IsAbs(t) || path.Clean(t) != t || t == "/" || strings.ContainsRune(t, 0) {
			return bad("container %s can't have anything mounted at %q: it is not a clean absolute path below /", s.ID, t)
		}
		for _, kernel := range []string{"/proc", "/sys"} {
			if within(t, kernel) {
				return bad("container %s can't have anything mounted at %q: %s belongs to the kernel", s.ID, t, kernel)
			}
		}
	}
	for _, m := range c.Mounts {
		if !filepath.IsAbs(m.Source) {
			return bad("container %s can't have %q mounted: the path is not absolute", s.ID, m.Source)
		}
	}
	return nil
}

func (s Spec) insideTargets() []string {
	var list []string
	for _, t := range s.Container.Tmpfs {
		list = append(list, t.Target)
	}
	for _, m := range s.Container.Mounts {
		list = append(list, m.Target)
	}
	for _, b := range s.Binds {
		list = append(list, b.Target)
	}
	return list
}

// bundle returns the plan with which a step mounts the root, writes the bundle of an OCI runtime, and becomes it.
func (l launch) bundle(dir stateDir) oci.Bundle {
	s, c := l.Spec, l.Spec.Container
	mounts := append([]oci.Mount{}, c.Mounts...)
	for _, b := range s.Binds {
		mounts = append(mounts, oci.Mount{Source: b.Source, Target: b.Target, Options: []string{"nosuid", "nodev"},
			Give: true})
	}
	for target, source := range map[string]string{"/etc/hosts": c.Hosts, "/etc/resolv.conf": c.Resolv} {
		if source != "" {
			mounts = append(mounts, oci.Mount{Source: source, Target: target, Options: []string{"ro"}})
		}
	}
	b := oci.Bundle{
		ID: string(s.ID), Dir: dir.path(dirBundle), Runtime: l.Runtime.Path, Init: l.Runtime.Init,
		Rootfs: c.Rootfs, ReadOnly: c.ReadOnly, Tmpfs: c.Tmpfs, Mounts: mounts,
		CapAdd: c.CapAdd, CapDrop: c.CapDrop, User: s.User, Hostname: c.Hostname, NetNS: c.NetNS, ShmBytes: c.ShmBytes,
		Seccomp: l.Runtime.Seccomp, Cgroup: l.Runtime.CgroupPath, Env: append(initEnv(), plan{Env: l.Env}.marks()...),
	}
	if b.Hostname == "" {
		b.Hostname = strings.TrimRight(string(s.ID)[:min(len(s.ID), 64)], "._-")
	}
	for name, r := range s.Limits.Rlimits {
		b.Rlimits = append(b.Rlimits, oci.Rlimit{Name: name, Soft: r.Soft, Hard: r.Hard})
	}
	return b
}

// limits returns the limits of the instance's cgroup.
func (l launch) limits() Limits {
	limits := l.Spec.Limits
	if l.Spec.Container != nil && limits.PidsMax > 0 {
		limits.PidsMax += containerThreads
	}
	return limits
}

// withoutInit returns how many of n processes in the instance's cgroup are not the container's init.
func (l launch) withoutInit(n int) int {
	if l.Spec.Container != nil {
		return max(0, n-1)
	}
	return n
}

// checkSources refuses a container that mounts something that is not on this node. The OCI runtime's own words for it
// are long, and have the path at their end. Code: mount_missing.
func (s Spec) checkSources() error {
	for _, m := range s.Container.Mounts {
		if _, err := os.Stat(m.Source); errors.Is(err, fs.ErrNotExist) {
			return model.Refuse(CodeMountMissing, "mount %s: this node has no %s", m.Target, m.Source).
				WithHint("make it there, or let a constraint name the nodes that have it")
		}
	}
	return nil
}
