package oci

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// findUser returns the ids of a user of the image, whose root is mounted at root. A number need not be in the image's
// /etc/passwd. The group is that of /etc/passwd, or 0, unless name has one after a colon.
func findUser(root, name string) (specs.User, error) {
	user, group, grouped := strings.Cut(name, ":")
	if user == "" {
		user = "0"
	}
	passwd, err := readLines(root, "etc/passwd")
	if err != nil {
		return specs.User{}, err
	}
	groups, err := readLines(root, "etc/group")
	if err != nil {
		return specs.User{}, err
	}
	var who specs.User
	uid, numeric := number(user)
	who.UID = uid
	login := ""
	known := slices.ContainsFunc(passwd, func(f []string) bool { // name:password:uid:gid:...
		if len(f) < 4 || f[0] != user && f[2] != user {
			return false
		}
		u, ok1 := number(f[2])
		g, ok2 := number(f[3])
		if ok1 && ok2 {
			who.UID, who.GID, login = u, g, f[0]
		}
		return ok1 && ok2
	})
	if !known && !numeric {
		return specs.User{}, fmt.Errorf("user %q is not in the image's /etc/passwd", user)
	}
	if grouped {
		who.GID, err = findGroup(groups, group)
		return who, err
	}
	for _, f := range groups { // name:password:gid:members
		if g, ok := number(at(f, 2)); ok && login != "" && slices.Contains(strings.Split(at(f, 3), ","), login) {
			who.AdditionalGids = append(who.AdditionalGids, g)
		}
	}
	return who, nil
}

func findGroup(groups [][]string, name string) (uint32, error) {
	for _, f := range groups {
		if g, ok := number(at(f, 2)); ok && (f[0] == name || f[2] == name) {
			return g, nil
		}
	}
	if g, ok := number(name); ok {
		return g, nil
	}
	return 0, fmt.Errorf("group %q is not in the image's /etc/group", name)
}

func at(fields []string, i int) string {
	if i >= len(fields) {
		return ""
	}
	return fields[i]
}

func number(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return uint32(n), err == nil
}

// readLines returns the fields of each line of a file of the image. Symbolic links lead nowhere outside of root. A file
// that is missing has no lines.
func readLines(root, name string) ([][]string, error) {
	dir, err := unix.Open(root, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(dir) }()
	fd, err := unix.Openat2(dir, name, &unix.OpenHow{Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS})
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the image's /%s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil, fmt.Errorf("the image's /%s is not a file", name)
	}
	var list [][]string
	lines := bufio.NewScanner(io.LimitReader(f, 1<<20))
	for lines.Scan() {
		list = append(list, strings.Split(strings.TrimSpace(lines.Text()), ":"))
	}
	return list, lines.Err()
}
