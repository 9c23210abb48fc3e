package driver

import (
	"bufio"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Capabilities says what this node can enforce. Notes has one line for people about each thing that the node can't
// enforce, such as "memory caps not enforced: no cgroup access (...)".
type Capabilities struct {
	CgroupVersion int  // 1 or 2; 0 = cgroups are not used
	MemoryCap     bool // Limits.MemoryBytes is a hard cap, and OOM kills are recognised
	CPUWeight     bool // Limits.CPUShares has an effect
	PidsMax       bool // Limits.PidsMax is enforced
	OtherUsers    bool // instances may run as users other than the agent's
	Binds         bool // Spec.Binds work
	// NoContainers says why the node can't run containers; "" if it can.
	NoContainers string
	Notes        []string
}

// cgroupHost knows where the cgroups of this agent's instances are: below Config.CgroupParent, in the mount of each
// usable controller. CgroupParent is relative to the root of the mount, not to the agent's own cgroup, because in
// version 2 a cgroup with processes can't have child cgroups with controllers.
type cgroupHost struct {
	version int
	parents map[string]string // controller -> directory of Config.CgroupParent; for v2 the only key is ""
	// extra has the directories of Config.CgroupParent in the other hierarchies, where an OCI runtime makes cgroups too.
	extra []string
}

// ref returns the cgroup of a run, which may not exist yet. It returns the zero value if h is nil. The name has a part
// of the token, because an instance of another agent can have the same id.
func (h *cgroupHost) ref(id ID, token string) cgroupRef {
	if h == nil {
		return cgroupRef{}
	}
	dirs := make(map[string]string, len(h.parents))
	for c, p := range h.parents {
		dirs[c] = filepath.Join(p, cgroupName(id, token))
	}
	return cgroupRef{Version: h.version, Dirs: dirs}
}

func cgroupName(id ID, token string) string { return string(id) + "-" + token[:8] }

// others returns the cgroups of a container that the OCI runtime makes in hierarchies that the driver does not use.
func (h *cgroupHost) others(id ID, token string) []string {
	var list []string
	for _, dir := range h.extra {
		list = append(list, filepath.Join(dir, cgroupName(id, token)))
	}
	return list
}

// all returns the directory of Config.CgroupParent in every hierarchy. It returns nil if h is nil.
func (h *cgroupHost) all() []string {
	if h == nil {
		return nil
	}
	return append(slices.Collect(maps.Values(h.parents)), h.extra...)
}

// check returns an error if it can't make and remove a cgroup in each hierarchy. It returns nil if h is nil.
func (h *cgroupHost) check() error {
	if h == nil {
		return nil
	}
	for _, dir := range h.parents {
		probe := filepath.Join(dir, "self-check")
		if err := makeCgroupDir(probe); err != nil {
			return err
		}
		if err := removeCgroupDir(probe); err != nil {
			return err
		}
	}
	return nil
}

// sweep removes the cgroups below Config.CgroupParent whose directories are not in keep. Cgroups with processes stay,
// because the kernel refuses to remove them.
func (h *cgroupHost) sweep(keep map[string]bool) {
	for _, dir := range h.all() {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue
		}
		for _, e := range entries {
			if sub := filepath.Join(dir, e.Name()); e.IsDir() && !keep[sub] {
				_ = removeCgroupTree(sub)
			}
		}
	}
}

// removeParents removes, in each hierarchy, the cgroup named parent and the cgroups above it, up to the first that is
// not empty.
func (h *cgroupHost) removeParents(parent string) {
	for _, dir := range h.all() {
		for range strings.Count(parent, "/") + 1 {
			if unix.Rmdir(dir) != nil {
				break
			}
			dir = filepath.Dir(dir)
		}
	}
}

// detectHost finds out what this node can enforce, by setting each limit on a temporary cgroup. It returns a nil
// cgroupHost if cgroups are turned off or can't be used.
func detectHost(parent string) (*cgroupHost, Capabilities) {
	caps := Capabilities{OtherUsers: os.Geteuid() == 0}
	if !caps.OtherUsers {
		caps.Notes = append(caps.Notes,
			fmt.Sprintf("instances run as the agent's own user (uid %d): it is not root", os.Geteuid()))
	}
	if err := probeBinds(); err != nil {
		caps.Notes = append(caps.Notes,
			fmt.Sprintf("volumes are not mounted at their path: %v; use OUTSPAN_VOLUME_<NAME>", err))
	} else {
		caps.Binds = true
	}
	if parent == "" {
		caps.Notes = append(caps.Notes, "memory caps not enforced: cgroups are turned off")
		return nil, caps
	}
	h, err := findHost(parent)
	if err == nil {
		err = h.probe(&caps)
	}
	if err != nil {
		caps.Notes = append(caps.Notes, fmt.Sprintf("memory caps not enforced: no cgroup access (%v)", err))
		return nil, caps
	}
	caps.CgroupVersion = h.version
	for _, c := range []struct {
		ok   bool
		name string
	}{{caps.MemoryCap, "memory caps"}, {caps.CPUWeight, "cpu weights"}, {caps.PidsMax, "process limits"}} {
		if !c.ok {
			caps.Notes = append(caps.Notes, c.name+" not enforced: the cgroup controller is missing")
		}
	}
	return h, caps
}

// cgroupMount is one mount of a cgroup hierarchy.
type cgroupMount struct {
	dir     string
	version int
	options []string // of the superblock; they include the controllers; nil for v2
}

func findHost(parent string) (*cgroupHost, error) {
	mounts, err := cgroupMounts("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		if m.version == 2 && lists(m.dir, "cgroup.controllers", "memory") {
			return hostV2(m.dir, parent)
		}
	}
	return hostV1(mounts, parent)
}

func cgroupMounts(path string) ([]cgroupMount, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var list []cgroupMount
	for s := bufio.NewScanner(f); s.Scan(); {
		before, after, ok := strings.Cut(s.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup":
			list = append(list, cgroupMount{dir: left[4], version: 1, options: strings.Split(right[2], ",")})
		case "cgroup2":
			list = append(list, cgroupMount{dir: left[4], version: 2})
		}
	}
	return list, nil
}

// lists reports whether word is one of the space-separated words in a cgroup file.
func lists(dir, file, word string) bool {
	b, err := os.ReadFile(filepath.Join(dir, file))
	return err == nil && slices.Contains(strings.Fields(string(b)), word)
}

// hostV1 makes the cgroup parent in the hierarchy of each controller, and skips controllers for which this fails. It
// returns an error if no controller remains.
func hostV1(mounts []cgroupMount, parent string) (*cgroupHost, error) {
	h := &cgroupHost{version: 1, parents: make(map[string]string)}
	err := errors.New("no controllers are mounted")
	for _, c := range []string{"memory", "cpu", "cpuacct", "pids", "freezer"} {
		for _, m := range mounts {
			if m.version != 1 || !slices.Contains(m.options, c) || h.parents[c] != "" {
				continue
			}
			dir := filepath.Join(m.dir, parent)
			if err = makeCgroupDir(dir); err == nil {
				h.parents[c] = dir
			}
		}
	}
	if len(h.parents) == 0 {
		return nil, err
	}
	for _, m := range mounts {
		if dir := filepath.Join(m.dir, parent); !slices.Contains(h.all(), dir) {
			h.extra = append(h.extra, dir)
		}
	}
	return h, nil
}

// hostV2 makes the cgroup parent, and enables the controllers in parent and in all cgroups above it.
func hostV2(mount, parent string) (*cgroupHost, error) {
	// Moving a process into a cgroup also needs write access to this file. mkdir can succeed without this access.
	if err := unix.Access(filepath.Join(mount, "cgroup.procs"), unix.W_OK); err != nil {
		return nil, fmt.Errorf("write %s/cgroup.procs: %w", mount, err)
	}
	dir := filepath.Join(mount, parent)
	if err := makeCgroupDir(dir); err != nil {
		return nil, err
	}
	at := mount
	for _, part := range strings.Split(parent, "/") {
		enableControllers(at)
		at = filepath.Join(at, part)
	}
	enableControllers(at)
	return &cgroupHost{version: 2, parents: map[string]string{"": dir}}, nil
}

// enableControllers enables the controllers one by one, because the kernel refuses a list with a missing controller. It
// ignores errors; probe finds out which controllers work.
func enableControllers(dir string) {
	for _, c := range []string{"+memory", "+cpu", "+pids"} {
		_ = writeCgroupString(dir, "cgroup.subtree_control", c)
	}
}

// probe makes a cgroup, sets each limit on it, and removes the cgroup again. It records in caps which limits work, and
// returns an error if the cgroup can't be made.
func (h *cgroupHost) probe(caps *Capabilities) error {
	ref := h.ref(ID("probe-"+strconv.Itoa(os.Getpid())), randomToken())
	g := ref.open()
	defer func() { _ = g.remove() }() // if this fails, Driver.Close removes the cgroup
	if err := g.create(Limits{}); err != nil {
		return err
	}
	try := func(l Limits, v1, v2 string) bool {
		if h.version == 2 && !cgroup2(ref.Dirs[""]).has(v2) || h.version == 1 && h.parents[v1] == "" {
			return false
		}
		return g.ctrl.limit(l) == nil
	}
	caps.MemoryCap = try(Limits{MemoryBytes: 64 << 20}, "memory", "memory.max")
	caps.CPUWeight = try(Limits{CPUShares: 100}, "cpu", "cpu.weight")
	caps.PidsMax = try(Limits{PidsMax: 64}, "pids", "pids.max")
	return nil
}
