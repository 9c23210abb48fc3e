package agent

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// sharesPerCore is the number of CPU shares of a core. It does not depend on the clock rate, which changes while a
// machine saves power.
const sharesPerCore = 1000

// detectCapacity finds what this machine, or the agent's container, can give. root is "/" except in tests. A value that
// can't be found is 0; then nothing is placed here until it is configured.
func detectCapacity(root string) model.Resources {
	memory := memTotal(filepath.Join(root, "proc", "meminfo"))
	for _, limit := range cgroupLimits(root) {
		memory = min(memory, limit)
	}
	return model.Resources{CPU: int64(runtime.NumCPU()) * sharesPerCore, MemoryBytes: memory}
}

func memTotal(path string) int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) == 3 && f[0] == "MemTotal:" && f[2] == "kB" {
			kb, _ := strconv.ParseInt(f[1], 10, 64)
			return kb << 10
		}
	}
	return 0
}

// cgroupLimits returns the memory limits of the agent's own cgroup and of all cgroups above it, of version 1 or 2.
func cgroupLimits(root string) []int64 {
	b, err := os.ReadFile(filepath.Join(root, "proc", "self", "cgroup"))
	if err != nil {
		return nil
	}
	var limits []int64
	mounts := filepath.Join(root, "sys", "fs", "cgroup")
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		f := strings.SplitN(s.Text(), ":", 3) // id:controllers:path
		if len(f) != 3 {
			continue
		}
		switch {
		case f[1] == "":
			limits = append(limits, limitsAbove(mounts, f[2], "memory.max")...)
		case strings.Contains(","+f[1]+",", ",memory,"):
			limits = append(limits, limitsAbove(filepath.Join(mounts, "memory"), f[2], "memory.limit_in_bytes")...)
		}
	}
	return limits
}

// limitsAbove reads file in mount/path and in every directory between the two. In a container path may not exist in the
// mount, which begins at the container's own cgroup; the walk then still reads the limits at the mount.
func limitsAbove(mount, path, file string) []int64 {
	var limits []int64
	for dir := filepath.Clean("/" + path); ; dir = filepath.Dir(dir) {
		if b, err := os.ReadFile(filepath.Join(mount, dir, file)); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 {
				limits = append(limits, n)
			}
		}
		if dir == "/" {
			return limits
		}
	}
}

// shape returns what the node reports of itself at registration.
func shape(c NodeConfig) model.NodeShape {
	capacity := detectCapacity("/")
	if c.Capacity.CPU > 0 {
		capacity.CPU = c.Capacity.CPU
	}
	if c.Capacity.MemoryBytes > 0 {
		capacity.MemoryBytes = c.Capacity.MemoryBytes
	}
	return model.NodeShape{
		Capacity: capacity, Reserved: c.Reserve, Labels: c.Labels, Attributes: attributes(),
		PortMin: c.PortMin, PortMax: c.PortMax,
	}
}

// attributes returns what constraints can name as node.attr.X.
func attributes() map[string]string {
	a := map[string]string{"os": runtime.GOOS, "arch": runtime.GOARCH, "cpus": strconv.Itoa(runtime.NumCPU())}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		a["kernel"] = unix.ByteSliceToString(u.Release[:])
	}
	if name, err := os.Hostname(); err == nil {
		a["hostname"] = name
	}
	return a
}

// hostID names this boot of this machine: a copy of the machine has another boot id or another machine id.
func hostID(boot string) string {
	machine, _ := os.ReadFile("/etc/machine-id") // not every machine has one
	return boot + "/" + strings.TrimSpace(string(machine))
}

// machineID identifies the machine to the servers, by its installation and its firmware (which only root can read).
// Both ids are hashed, since they are private.
func machineID() string {
	return fingerprint("/etc/machine-id") + "/" + fingerprint("/sys/class/dmi/id/product_uuid")
}

func fingerprint(path string) string {
	text, err := os.ReadFile(path)
	if id := strings.TrimSpace(string(text)); err == nil && id != "" {
		sum := sha256.Sum256([]byte("outspan " + id))
		return hex.EncodeToString(sum[:8])
	}
	return ""
}

// bootID names this boot of the kernel.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", diskError("read the boot id of the kernel", err)
	}
	return strings.TrimSpace(string(b)), nil
}
