package agent

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
)

// DefaultUIDs returns the range of user ids for instances if the agent runs as root and its configuration names no
// range. The range is above the ids of accounts of SSSD and FreeIPA (up to 2000200000) and the ids of containers
// (systemd, subordinate ids). It is below the ids of systemd's foreign images (from 2147352576).
func DefaultUIDs() driver.UIDRange { return driver.UIDRange{First: 2_100_000_000, Last: 2_100_065_535} }

// instanceUIDs returns the range from which each instance gets its own user id. If the configuration names no range, it
// returns the default range, or the zero range if the agent does not run as root or SharedUser is set. If the user
// namespace lacks ids of the default range, it returns the zero range and a warning. Code: invalid (the configuration
// names a range that can't be used).
func (c ExecConfig) instanceUIDs(euid int, idMap uidMap) (uids driver.UIDRange, warning string, err error) {
	named := c.UIDs != driver.UIDRange{}
	switch {
	case named && euid != 0:
		return uids, "",
			model.Refuse(model.CodeInvalid, "instance_uids needs an agent that runs as root; this one runs as uid %d", euid)
	case named && !idMap.has(c.UIDs):
		return uids, "",
			model.Refuse(model.CodeInvalid, "instance_uids %s are not all mapped in the user namespace of this agent", c.UIDs).
				WithHint(`name a range that /proc/self/uid_map has, or write instance_uids = "off"`)
	case named:
		return c.UIDs, "", nil
	case euid != 0 || c.SharedUser:
		return uids, "", nil
	case !idMap.has(DefaultUIDs()):
		return uids,
			fmt.Sprintf("the user namespace of this agent does not map the user ids %s: instances that name no user share %s, "+
				"and can read each other's "+
				"environment and files; map the range, name another one with instance_uids, or name a user in each job file",
				DefaultUIDs(), c.defaultUser()), nil
	}
	return DefaultUIDs(), "", nil
}

// uidMap lists the user ids that a process can use, up to 2^31-1, as ranges in ascending order. Adjacent ranges are
// joined. Nil means all ids.
type uidMap []driver.UIDRange

// ownUIDMap returns the map of this process. It returns nil if the map can't be read, as on a kernel without user
// namespaces.
func ownUIDMap() uidMap {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return nil
	}
	return parseUIDMap(string(text))
}

// parseUIDMap parses a uid_map of /proc. Each line has the first id inside the namespace, the first id outside, and the
// number of ids.
func parseUIDMap(text string) uidMap {
	ids := uidMap{}
	for line := range strings.Lines(text) {
		var first, outside, count uint32
		if n, _ := fmt.Sscan(line, &first, &outside, &count); n == 3 && count > 0 && first <= math.MaxInt32 {
			ids = append(ids, driver.UIDRange{First: int(first), Last: int(min(int64(first)+int64(count)-1, math.MaxInt32))})
		}
	}
	slices.SortFunc(ids, func(a, b driver.UIDRange) int { return cmp.Compare(a.First, b.First) })
	joined := uidMap{}
	for _, r := range ids {
		if last := len(joined) - 1; last >= 0 && r.First <= joined[last].Last+1 {
			joined[last].Last = max(joined[last].Last, r.Last)
			continue
		}
		joined = append(joined, r)
	}
	return joined
}

// has reports whether the process can use all ids of r.
func (m uidMap) has(r driver.UIDRange) bool {
	return m == nil || slices.ContainsFunc(m, func(in driver.UIDRange) bool {
		return in.First <= r.First && r.Last <= in.Last
	})
}
