package agent

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/model"
)

// reachable returns an error if the user can't pass through dir or a directory above it. Without this check, the user's
// program would fail for no clear reason. Directories with access lists are not checked. Codes: invalid, and internal
// if the disk refused.
func reachable(dir string, who account) error {
	resolved, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return diskError("look at "+dir, err)
	}
	for at := resolved; ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err != nil {
			return diskError("look at "+at, err)
		}
		if !letsPass(at, info, who) {
			name := who.name
			if name == "" {
				name = strconv.Itoa(who.uid)
			}
			return model.Refuse(model.CodeInvalid, "user %s can't pass through %s (mode %04o) to the agent's data directory",
				name, at, info.Mode().Perm()).WithHint("run on the node: chmod o+x %s; or put data_dir elsewhere", at)
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// letsPass reports whether a directory lets a user pass. It returns true for each directory with an access list,
// because it does not read the list.
func letsPass(dir string, info fs.FileInfo, who account) bool {
	owner, ok := info.Sys().(*syscall.Stat_t)
	mode := info.Mode().Perm()
	switch {
	case who.uid == 0, !ok, mode&0o111 == 0o111:
		return true
	case hasAccessList(dir):
		return true
	case int(owner.Uid) == who.uid:
		return mode&0o100 != 0
	case int(owner.Gid) == who.gid, slices.Contains(groupsOf(who), strconv.Itoa(int(owner.Gid))):
		return mode&0o010 != 0
	}
	return mode&0o001 != 0
}

func hasAccessList(dir string) bool {
	n, err := unix.Getxattr(dir, "system.posix_acl_access", nil)
	return err == nil && n > 0
}

// groupsOf returns the ids of an account's groups, or nil if they can't be found.
func groupsOf(who account) []string {
	u, err := user.LookupId(strconv.Itoa(who.uid))
	if err != nil {
		return nil
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil
	}
	return groups
}
