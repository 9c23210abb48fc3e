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

// sharesPerCore is the number of CPU shares of a core. It does not depend on the clock rate, which drops when a machine
// saves power.
const sharesPerCore = 1000

// detectCapacity finds the resources of this machine, or of the agent's container. root is "/" except in tests. A value
// that can't be found is 0. Then nothing is placed on this node until the value is configured.
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

// cgroupLimits returns the memory limits of the agent's own cgroup (version 1 or 2) and of all cgroups above it.
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

// limitsAbove reads the limits in the named file of mount/path and of each directory from there up to mount. In a
// container the mount begins at the container's own cgroup, so path may not exist in it. Then only the limits that
// exist are read, such as those at mount itself.
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

// shape returns what the node reports about itself when it registers. Configured capacity replaces what was detected.
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

// attributes returns the values that constraints can name as node.attr.X.
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

// hostID identifies one boot of one machine. A copy of the machine has a different boot id or a different machine id.
func hostID(boot string) string {
	machine, _ := os.ReadFile("/etc/machine-id") // not every machine has one
	return boot + "/" + strings.TrimSpace(string(machine))
}

// machineID identifies the machine to the servers, by the id of its installation and that of its firmware (which only
// root can read). Both ids are hashed, since they are private. An id that can't be read is empty.
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

// bootID returns the kernel's id of this boot of the machine.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", diskError("read the boot id of the kernel", err)
	}
	return strings.TrimSpace(string(b)), nil
}
