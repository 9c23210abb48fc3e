package oci

import (
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/outspan/outspan/agent/driver/inside"
)

// defaultCaps are the capabilities of a container whose job names none. They let an image that runs as root set itself
// up and give up rights. Docker's list also has MKNOD, NET_RAW and AUDIT_WRITE.
var defaultCaps = []string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_KILL",
	"CAP_NET_BIND_SERVICE", "CAP_SETFCAP", "CAP_SETGID", "CAP_SETPCAP", "CAP_SETUID", "CAP_SYS_CHROOT"}

// allCaps are the capabilities of Linux 5.9 and later.
var allCaps = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP
	LINUX_IMMUTABLE NET_BIND_SERVICE NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT
	SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE
	AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM BLOCK_SUSPEND AUDIT_READ PERFMON BPF
	CHECKPOINT_RESTORE`)

// capName returns the kernel's name of a capability, which may be written in small letters or without CAP_.
func capName(name string) string { return "CAP_" + strings.TrimPrefix(strings.ToUpper(name), "CAP_") }

// Capability reports whether Linux has a capability of this name.
func Capability(name string) bool {
	return slices.Contains(allCaps, strings.TrimPrefix(capName(name), "CAP_"))
}

// Capabilities returns the capabilities of a container, sorted.
func Capabilities(add, drop []string) []string {
	var list []string
	if !slices.ContainsFunc(drop, func(c string) bool { return strings.EqualFold(c, "ALL") }) {
		list = append(list, defaultCaps...)
	}
	for _, c := range add {
		if strings.EqualFold(c, "ALL") {
			for _, each := range allCaps {
				list = append(list, capName(each))
			}
			continue
		}
		list = append(list, capName(c))
	}
	list = slices.DeleteFunc(list, func(c string) bool {
		return slices.ContainsFunc(drop, func(d string) bool { return capName(d) == c })
	})
	slices.Sort(list)
	return slices.Compact(list)
}

// capabilities returns the sets of the init and the program. A user other than root has those that the job added.
func (b Bundle) capabilities(uid uint32) *specs.LinuxCapabilities {
	all := Capabilities(b.CapAdd, b.CapDrop)
	if uid == 0 {
		return &specs.LinuxCapabilities{Bounding: all, Effective: all, Permitted: all}
	}
	added := Capabilities(b.CapAdd, append([]string{"ALL"}, b.CapDrop...))
	return &specs.LinuxCapabilities{Bounding: all, Effective: added, Permitted: added, Inheritable: added, Ambient: added}
}

// Spec returns the content of config.json, without a seccomp profile.
func (b Bundle) Spec(who specs.User) *specs.Spec {
	namespaces := []specs.LinuxNamespace{{Type: specs.PIDNamespace}, {Type: specs.IPCNamespace},
		{Type: specs.UTSNamespace}, {Type: specs.MountNamespace}, {Type: specs.CgroupNamespace}}
	var sysctl map[string]string
	if b.NetNS != "" {
		namespaces = append(namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: b.NetNS})
		// All ports of the namespace are the container's, so any user of it may listen on port 80.
		sysctl = map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"}
	}
	var limits []specs.POSIXRlimit
	for _, r := range b.Rlimits {
		limits = append(limits, specs.POSIXRlimit{Type: "RLIMIT_" + strings.ToUpper(r.Name), Soft: r.Soft, Hard: r.Hard})
	}
	slices.SortFunc(limits, func(x, y specs.POSIXRlimit) int { return strings.Compare(x.Type, y.Type) })
	oom := 0 // otherwise the shim's own, which would spare the program
	return &specs.Spec{
		Version:  "1.0.2",
		Root:     &specs.Root{Path: dirRoot, Readonly: b.ReadOnly},
		Hostname: b.Hostname,
		Process: &specs.Process{
			User: who, Args: []string{InitPath, inside.Subcommand}, Env: b.Env, Cwd: "/",
			Capabilities: b.capabilities(who.UID), Rlimits: limits, NoNewPrivileges: true, OOMScoreAdj: &oom,
		},
		Mounts: b.mounts(),
		Linux: &specs.Linux{
			CgroupsPath: b.Cgroup,
			// The driver has set the limits on the cgroup. The runtime adds the devices that every container has.
			Resources:  &specs.LinuxResources{Devices: []specs.LinuxDeviceCgroup{{Allow: false, Access: "rwm"}}},
			Namespaces: namespaces, Sysctl: sysctl,
			MaskedPaths: []string{"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys",
				"/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi",
				"/sys/firmware", "/sys/devices/virtual/powercap"},
			ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
		},
	}
}

// mounts returns the mounts inside, in their order. Those of a job come after the kernel's, parents before children.
func (b Bundle) mounts() []specs.Mount {
	shm := b.ShmBytes
	if shm == 0 {
		shm = 64 << 20
	}
	list := []specs.Mount{
		{Destination: "/proc", Type: "proc", Source: "proc", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs",
			Options: []string{"nosuid", "strictatime", "mode=755", "size=65536k"}},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts",
			Options: []string{"nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"}},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm",
			Options: []string{"nosuid", "noexec", "nodev", "mode=1777", fmt.Sprintf("size=%d", shm)}},
		{Destination: "/dev/mqueue", Type: "mqueue", Source: "mqueue", Options: []string{"nosuid", "noexec", "nodev"}},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/sys/fs/cgroup", Type: "cgroup", Source: "cgroup",
			Options: []string{"nosuid", "noexec", "nodev", "relatime", "ro"}},
		{Destination: InitPath, Type: "bind", Source: b.Init, Options: []string{"bind", "ro", "nosuid", "nodev"}},
	}
	kernel := len(list)
	for _, t := range b.Tmpfs {
		mode := t.Mode
		if mode == 0 {
			mode = 0o1777
		}
		options := []string{"nosuid", "nodev", fmt.Sprintf("mode=%o", mode)}
		if t.Bytes > 0 {
			options = append(options, fmt.Sprintf("size=%d", t.Bytes))
		}
		list = append(list, specs.Mount{Destination: t.Target, Type: "tmpfs", Source: "tmpfs", Options: options})
	}
	for _, m := range b.Mounts {
		list = append(list, specs.Mount{Destination: m.Target, Type: "bind", Source: m.Source,
			Options: append([]string{"rbind", "rprivate"}, m.Options...)})
	}
	slices.SortStableFunc(list[kernel:], func(x, y specs.Mount) int {
		return strings.Compare(x.Destination, y.Destination)
	})
	return list
}
