package model

const (
	minMemory = 1 << 20
	minDisk   = 1 << 20
)

func (g *GroupSpec) checkResources() *Error {
	r := g.Resources
	switch {
	case r.MemoryBytes < minMemory:
		return RefuseAt(KeyPath("resources", "memory"),
			"resources.memory is %d bytes; it must be at least 1 MiB", r.MemoryBytes)
	case r.CPU < 0 || r.Pids < 0:
		return RefuseAt(KeyPath("resources"), "resources.cpu and pids must not be negative")
	case r.MemoryBytes > maxAmount || r.CPU > maxAmount || r.Pids > maxAmount:
		return RefuseAt(KeyPath("resources"),
			"resources: no machine has %d bytes, a CPU of %d or %d processes", r.MemoryBytes, r.CPU, r.Pids)
	case r.DiskBytes != 0 && r.DiskBytes < minDisk:
		return RefuseAt(KeyPath("resources", "disk"), "resources.disk is %d bytes; it must be at least 1 MiB", r.DiskBytes).
			WithHint("leave it out for no limit")
	case r.DiskBytes > maxAmount:
		return RefuseAt(KeyPath("resources", "disk"), "resources.disk is %d bytes; no machine has so many", r.DiskBytes).
			WithHint("leave it out for no limit")
	}
	return nil
}
