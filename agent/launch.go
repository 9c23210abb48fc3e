package agent

import (
	"cmp"
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/outspan/outspan/agent/bridge"
	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/driver/oci"
	"github.com/outspan/outspan/agent/image"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// The kernel's bounds for CPU shares.
const (
	minShares = 2
	maxShares = 262144
)

func (w *shared) values(a transport.Assignment) values {
	return values{node: w.node(), slot: a.Slot, port: inside(a)}
}

// launch returns the driver's Spec for an assignment. lease is when the instance's lease ends, or 0 if the instance has
// no lease. For a container, it makes the root file system. Codes: invalid (an unknown variable; trying again does not
// help), no_container_runtime, runtime_down, image_missing.
func (w *shared) launch(ctx context.Context, a transport.Assignment, lease driver.BootTime) (driver.Spec, error) {
	if a.Spec.Container != nil && w.images == nil {
		return driver.Spec{}, model.Refuse(model.CodeNoRuntime, "this node has no container runtime")
	}
	v, peers := w.values(a), w.peers.path(a.Group)
	if a.Spec.Container != nil {
		peers = filepath.Join(peersInside, filepath.Base(peers))
	}
	binds, places := w.mounts(a)
	env, err := v.environment(a, func(name string) string { return places[name] }, w.services(), peers)
	if err != nil {
		return driver.Spec{}, err
	}
	sig, grace := w.stopPolicy(a)
	spec := driver.Spec{
		ID: driver.ID(a.ID), Env: env, Limits: limits(a), Stop: driver.StopPolicy{Signal: sig, Grace: grace}, Binds: binds,
		LeaseUntil: lease,
	}
	if a.Spec.Container != nil {
		return w.contain(ctx, a, v, spec)
	}
	spec.User = a.Spec.Exec.User
	if spec.Command, err = v.expand("command", a.Spec.Exec.Command); err == nil {
		spec.Args, err = v.expandAll("argument", a.Spec.Exec.Args)
	}
	return spec, err
}

// peersInside is where a container sees the directory with the lists of its job's instances.
const peersInside = "/run/outspan/peers"

// contain adds to spec what a container needs: its root file system, and what its image and job file say.
func (w *shared) contain(ctx context.Context, a transport.Assignment, v values, spec driver.Spec) (driver.Spec, error) {
	c := a.Spec.Container
	job := image.Overrides{User: c.User, Env: spec.Env}
	var err error
	if len(c.Entrypoint) > 0 {
		if job.Entrypoint, err = v.expandAll("entrypoint", c.Entrypoint); err != nil {
			return spec, err
		}
	}
	if c.Command != "" || len(c.Args) > 0 {
		words := c.Args
		if c.Command != "" {
			words = append([]string{c.Command}, c.Args...)
		}
		if job.Args, err = v.expandAll("argument", words); err != nil {
			return spec, err
		}
	}
	defaults, root, err := w.images.root(ctx, a.ID, c.ImageDigest())
	if err != nil {
		return spec, err
	}
	p := defaults.Merge(job)
	if len(p.Argv) == 0 {
		return spec, model.Refuse(model.CodeInvalid, "image %s names no program", c.ImageName()).
			WithHint("give the container a command")
	}
	spec.Command, spec.Args, spec.Env, spec.User, spec.Dir = p.Argv[0], p.Argv[1:], p.Env, p.User, p.Dir
	if spec.Stop.Signal == 0 {
		spec.Stop.Signal = w.imageSignal(a, p.StopSignal)
	}
	spec.Container = &driver.Container{
		Image: c.Image, ReadOnly: c.ReadOnly, CapAdd: c.CapAdd, CapDrop: c.CapDrop, ShmBytes: c.ShmBytes,
	}
	if !a.Spec.Bridged() { // otherwise connect fills in what belongs to the network
		spec.Container.Hostname, _ = os.Hostname() // without a name, the container gets one from its id
		spec.Container.Hosts = shown("/etc/hosts", a.Spec)
		spec.Container.Resolv = shown("/etc/resolv.conf", a.Spec)
	}
	for _, m := range root {
		spec.Container.Rootfs = append(spec.Container.Rootfs, oci.Mount{Type: m.Type, Source: m.Source, Options: m.Options})
	}
	for _, path := range c.Tmpfs {
		spec.Container.Tmpfs = append(spec.Container.Tmpfs, oci.Tmpfs{Target: path})
	}
	for _, m := range c.Mounts {
		of := oci.Mount{Source: m.Source, Target: m.Path}
		if m.ReadOnly {
			of.Options = []string{"ro"}
		}
		spec.Container.Mounts = append(spec.Container.Mounts, of)
	}
	lists := oci.Mount{Source: filepath.Dir(w.peers.path(a.Group)), Target: peersInside, Options: []string{"ro"}}
	if err := os.MkdirAll(lists.Source, 0o755); err != nil {
		return spec, diskError("make the directory of the lists of instances", err)
	}
	spec.Container.Mounts = append(spec.Container.Mounts, lists)
	return spec, nil
}

// shown returns the path of a file of the node that a container sees at the same path, or "" if the node has no such
// file or the job mounts something else there.
func shown(file string, spec *model.GroupSpec) string {
	if _, err := os.Stat(file); err != nil || covered(file, spec) {
		return ""
	}
	return file
}

// covered reports whether the job mounts something at a file of a container, or at its directory.
func covered(file string, spec *model.GroupSpec) bool {
	taken := func(path string) bool { return path == file || path == filepath.Dir(file) }
	return slices.ContainsFunc(spec.Container.Tmpfs, taken) ||
		slices.ContainsFunc(spec.Container.Mounts, func(m model.MountSpec) bool { return taken(m.Path) }) ||
		slices.ContainsFunc(spec.Volumes, func(v model.VolumeSpec) bool { return taken(v.Path) })
}

// connect gives a container its own network, and completes its Spec. Codes: those of bridge.Keeper.Connect.
func (w *shared) connect(ctx context.Context, a transport.Assignment, spec *driver.Spec) error {
	ports, inner := []bridge.Mapping{}, inside(a)
	for _, name := range sortedKeys(a.Ports) {
		ports = append(ports, bridge.Mapping{Host: uint16(a.Ports[name]), Container: uint16(inner[name])})
	}
	to, err := w.networks.Connect(ctx, string(a.ID), ports)
	if err != nil {
		return err
	}
	c := spec.Container
	c.NetNS, c.Hostname = to.Netns, bridge.HostName(string(a.ID))
	if !covered("/etc/hosts", a.Spec) {
		c.Hosts = to.Hosts
	}
	if !covered("/etc/resolv.conf", a.Spec) {
		c.Resolv = to.Resolv
	}
	spec.Env["OUTSPAN_IP"] = to.Address.String()
	return nil
}

// inside returns the ports on which the program of an assignment listens, by name.
func inside(a transport.Assignment) map[string]int {
	if a.Spec == nil || !a.Spec.Bridged() {
		return a.Ports
	}
	ports := maps.Clone(a.Ports)
	for _, p := range a.Spec.Ports {
		if _, has := ports[p.Name]; has && p.To != 0 {
			ports[p.Name] = p.To
		}
	}
	return ports
}

// imageSignal returns the stop signal of an image, whose name is "" if the image names none. It is a name or a number.
// It returns SIGTERM for a signal that can't be sent.
func (w *shared) imageSignal(a transport.Assignment, name string) syscall.Signal {
	if name == "" {
		return syscall.SIGTERM
	}
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n < 32 {
		return syscall.Signal(n)
	}
	sig, err := driver.ParseSignal(name)
	if err != nil {
		w.log.Warn("the image's stop signal can't be sent, SIGTERM is used", "instance", a.ID, "signal", name)
		return syscall.SIGTERM
	}
	return sig
}

// mounts returns the binds for the assignment's volumes, and the path of each volume by name. If the runtime can mount,
// as it always can for containers, the path is the one in the volume's spec. Otherwise there are no binds, and the path
// is the volume's own directory.
func (w *shared) mounts(a transport.Assignment) (binds []driver.Bind, places map[string]string) {
	mount := w.runtime.Capabilities().Binds || a.Spec.Container != nil
	places = make(map[string]string, len(a.Spec.Volumes))
	for _, v := range a.Spec.Volumes {
		dir := w.volumes.dir(a, v.Name)
		places[v.Name] = dir
		if mount {
			places[v.Name] = filepath.Clean(v.Path)
			binds = append(binds, driver.Bind{Source: dir, Target: places[v.Name]})
		}
	}
	return binds, places
}

// defaultPids limits the processes and threads of an instance whose job file sets no limit.
const defaultPids = 4096

func limits(a transport.Assignment) driver.Limits {
	l := driver.Limits{
		MemoryBytes: a.Memory, PidsMax: cmp.Or(a.Spec.Resources.Pids, defaultPids),
		CPUShares: min(max(a.Spec.Resources.CPU, minShares), maxShares),
	}
	rlimits := a.Spec.Exec.Rlimits
	if a.Spec.Container != nil {
		rlimits = a.Spec.Container.Rlimits
	}
	if len(rlimits) > 0 {
		l.Rlimits = make(map[string]driver.Rlimit, len(rlimits))
		for name, n := range rlimits {
			l.Rlimits[name] = driver.Rlimit{Soft: n, Hard: n}
		}
	}
	return l
}

// stopPolicy returns the signal that asks the assignment's program to stop, and its grace. For a container whose job
// says SIGTERM, which is the default, the signal is 0: the one with which the container was launched, which is that of
// its image. If the spec is not known, it returns SIGTERM and 0.
func (w *shared) stopPolicy(a transport.Assignment) (syscall.Signal, time.Duration) {
	if a.Spec == nil {
		return syscall.SIGTERM, 0
	}
	sig, err := driver.ParseSignal(a.Spec.Stop.Signal)
	if err != nil {
		sig = syscall.SIGTERM
	}
	if a.Spec.Container != nil && sig == syscall.SIGTERM {
		sig = 0
	}
	grace := a.Spec.Stop.Grace
	if a.Grace != nil {
		grace = *a.Grace
	}
	return sig, asDuration(grace)
}

// prepareNode makes the volumes of an assignment and reserves its ports. If the program runs as another user than the
// agent, prepareNode lets other users pass through the data directory. It returns an error if the program's user still
// can't reach the directories that the program uses.
func (a *Agent) prepareNode(as transport.Assignment) error {
	var who account // the start of a container gives the volumes to the image's user
	if as.Spec.Container == nil {
		var err error
		if who, err = accountOf(as.Spec.Exec.User, a.cfg.Exec.defaultUser()); err != nil {
			return err
		}
	}
	if who.other {
		if err := a.home.letThrough(); err != nil {
			return err
		}
		// Without binds, the program uses paths in the data directory, so its user must be able to pass through it.
		if binds, _ := a.shared.mounts(as); len(binds) == 0 {
			if err := reachable(a.home.dir, who); err != nil {
				return err
			}
		}
	}
	if err := a.shared.volumes.prepare(as, who); err != nil {
		return err
	}
	for _, name := range sortedKeys(as.Ports) {
		if err := a.forward.ports.check(as.Ports[name]); err != nil {
			return err
		}
		if err := a.shared.ports.Reserve(driver.ID(as.ID), uint16(as.Ports[name])); err != nil {
			return err
		}
	}
	return nil
}

// claim records the volumes and ports of an instance whose program runs already, or may run. It only logs a conflict,
// because the program can't be refused any more.
func (w *shared) claim(a transport.Assignment) {
	if holder, _ := w.volumes.claim(a); holder != "" {
		w.log.Error("two programs run on one volume", "instance", a.ID, "holder", holder)
	}
	if a.Spec == nil || a.Spec.Bridged() { // without the spec, it may have a network of its own
		if err := w.networks.Adopt(string(a.ID)); err != nil {
			w.log.Error("the ports of a container are not held", "instance", a.ID, "error", err)
		}
	}
	for _, name := range sortedKeys(a.Ports) {
		if err := w.ports.Claim(driver.ID(a.ID), uint16(a.Ports[name])); err != nil {
			w.log.Error("two programs run on one port", "instance", a.ID, "error", err)
		}
	}
}

// release frees the volumes, ports and network of an instance. Call it when no process of the instance runs. It blocks
// for at most 3 s. If the network can't be removed in that time, the ports stay reserved until tendNetworks has removed
// it, because the rules of the firewall still lead them there.
func (w *shared) release(id model.InstanceID) {
	w.volumes.release(id)
	if w.networks.Disconnect(string(id)) {
		w.ports.Release(driver.ID(id))
	}
}

// endingNetwork returns an instance whose network must be removed before the instance of the assignment can start: the
// instance itself, or an owner of its ports. It returns "" if there is none.
func (w *shared) endingNetwork(a transport.Assignment) string {
	if w.networks.Ending(string(a.ID)) {
		return string(a.ID)
	}
	for _, name := range sortedKeys(a.Ports) {
		if owner := string(w.ports.Owner(uint16(a.Ports[name]))); w.networks.Ending(owner) {
			return owner
		}
		if owner := w.networks.EndingOn(uint16(a.Ports[name])); owner != "" {
			return owner
		}
	}
	return ""
}

// users returns the driver's settings for the users that programs may run as.
func (c ExecConfig) users() driver.Config {
	return driver.Config{AllowRoot: c.AllowRoot, AllowUsers: c.AllowUsers, MinUID: c.MinUID, OwnUIDs: c.UIDs,
		DefaultUser: c.defaultUser()}
}

func (c ExecConfig) defaultUser() string {
	if c.DefaultUser == "" {
		return "nobody"
	}
	return c.DefaultUser
}
