package model

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// checkProgram refuses a group that has not exactly one of exec and container, or whose program is invalid.
func (g *GroupSpec) checkProgram() *Error {
	hasExec := g.Exec.Command != "" || len(g.Exec.Args) > 0 || g.Exec.User != "" || len(g.Exec.Rlimits) > 0
	if g.Container == nil {
		if !hasExec {
			return RefuseAt("", "the group has no command and no image: exec or container is needed").
				WithHint("write exec { command = \"/path/of/program\" }, or container { image = \"NAME\" }")
		}
		return g.checkExec()
	}
	if hasExec {
		return RefuseAt(KeyPath("container"), "the group has both exec and container").
			WithHint("remove one of them: a group runs one program")
	}
	c := g.Container
	for _, test := range []func() *Error{c.CheckImage, c.checkPaths, c.checkCapabilities, c.checkLimits} {
		if refusal := test(); refusal != nil {
			refusal.Key = KeyPath("container", refusal.Key)
			return refusal
		}
	}
	if refusal := g.checkMounts(); refusal != nil {
		return refusal
	}
	return g.checkEnv()
}

// imageName matches an optional host with its port, a path and a tag.
var imageName = sync.OnceValue(func() *regexp.Regexp {
	const host = `[A-Za-z0-9][A-Za-z0-9.-]*(:[0-9]{1,5})?`
	const word = `[a-z0-9]+(([._]|__|-+)[a-z0-9]+)*`
	return regexp.MustCompile(`^(` + host + `/)?` + word + `(/` + word + `)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$`)
})

var (
	imageDigest = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^sha256:[0-9a-f]{64}$`) })
	platform    = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z0-9]+/[a-z0-9]+(/[a-z0-9.]+)?$`) })
)

const (
	maxImage     = 400 // bytes of an image's name with its digest
	maxPlatforms = 32
)

// ValidDigest reports whether text is a digest of an image, "sha256:" and 64 hexadecimal digits.
func ValidDigest(text string) bool { return imageDigest().MatchString(text) }

// KeptPlatforms returns those of an image's platforms that a spec can have.
func KeptPlatforms(platforms []string) []string {
	var kept []string
	for _, p := range platforms {
		if platform().MatchString(p) && !slices.Contains(kept, p) && len(kept) < maxPlatforms {
			kept = append(kept, p)
		}
	}
	return kept
}

// CheckImage refuses a name of an image, or platforms, that are not valid. Code: invalid.
func (c *ContainerSpec) CheckImage() *Error {
	name, digest, pinned := strings.Cut(c.Image, "@")
	switch {
	case c.Image == "":
		return RefuseAt(KeyPath("image"), "container has no image")
	case len(c.Image) > maxImage:
		return RefuseAt(KeyPath("image"), "image has %d bytes, at most %d are allowed", len(c.Image), maxImage)
	case strings.Contains(name, "://"):
		return RefuseAt(KeyPath("image"), "image %q is a URL", c.Image).
			WithHint("leave out %s", name[:strings.Index(name, "://")+3])
	case !imageName().MatchString(name):
		return RefuseAt(KeyPath("image"), "image %q is not the name of an image", c.Image).
			WithHint("write [REGISTRY/]NAME[:TAG], with small letters in NAME, such as \"registry.lan/web:1.2\"")
	case pinned && !ValidDigest(digest):
		return RefuseAt(KeyPath("image"), "image %q: what follows the @ is not a digest", c.Image).
			WithHint("write NAME@sha256: and 64 hexadecimal digits, or leave the digest out")
	}
	for _, p := range c.Platforms {
		if !platform().MatchString(p) {
			return RefuseAt(KeyPath("platforms"), "platform %q is unknown", p).WithHint("write OS/ARCH, such as \"linux/amd64\"")
		}
	}
	return nil
}

// CheckResolved refuses a spec with an image whose digest is not known. Code: image_unresolved.
func (j *JobSpec) CheckResolved() *Error {
	for i := range j.Groups {
		if g := &j.Groups[i]; g.Container != nil && g.Container.ImageDigest() == "" {
			refusal := Refuse(CodeImageUnresolved, "the digest of image %s is not known", g.Container.Image).
				WithHint("name the image with its digest: NAME@sha256:...")
			refusal.Key = "container/image"
			return j.inGroup(g, refusal)
		}
	}
	return nil
}

// mountPath reports whether something can be mounted at a path in a container.
func mountPath(p string) bool {
	return volumePath(p) || p == "/dev/shm" || strings.HasPrefix(p, "/dev/") && volumePath(strings.TrimPrefix(p, "/dev"))
}

func (c *ContainerSpec) checkPaths() *Error {
	taken := map[string]bool{}
	for _, p := range c.Tmpfs {
		if !volumePath(p) || taken[p] {
			return RefuseAt(KeyPath("tmpfs"),
				"tmpfs %q is given twice, or is not an absolute and clean path outside /proc, /sys and /dev", p)
		}
		taken[p] = true
	}
	for _, m := range c.Mounts {
		switch {
		case !mountPath(m.Path) || taken[m.Path]:
			return RefuseAt(KeyPath("mount", m.Path),
				"mount %q: the path is taken, or is not an absolute and clean path outside /proc and /sys", m.Path)
		case !strings.HasPrefix(m.Source, "/") || strings.Contains(m.Source, "\x00"):
			return RefuseAt(KeyPath("mount", m.Path, "source"),
				"mount %s: source is %q; it must be an absolute path of the node", m.Path, m.Source).
				WithHint("data that belongs to the instance goes into a volume block")
		}
		taken[m.Path] = true
	}
	return nil
}

// checkMounts refuses a volume and a mount of the container at one path.
func (g *GroupSpec) checkMounts() *Error {
	for _, v := range g.Volumes {
		if slices.ContainsFunc(g.Container.Mounts, func(m MountSpec) bool { return m.Path == v.Path }) ||
			slices.Contains(g.Container.Tmpfs, v.Path) {
			return RefuseAt(KeyPath("volume", v.Name, "path"),
				"volume %s: the container mounts something else at %s", v.Name, v.Path)
		}
	}
	return nil
}

const allCapabilities = "ALL"

// knownCapabilities lists the kernel's capabilities without their prefix CAP_.
func knownCapabilities() []string {
	return []string{
		"AUDIT_CONTROL", "AUDIT_READ", "AUDIT_WRITE", "BLOCK_SUSPEND", "BPF", "CHECKPOINT_RESTORE", "CHOWN", "DAC_OVERRIDE",
		"DAC_READ_SEARCH", "FOWNER", "FSETID", "IPC_LOCK", "IPC_OWNER", "KILL", "LEASE", "LINUX_IMMUTABLE", "MAC_ADMIN",
		"MAC_OVERRIDE", "MKNOD", "NET_ADMIN", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_RAW", "PERFMON", "SETFCAP", "SETGID",
		"SETPCAP", "SETUID", "SYSLOG", "SYS_ADMIN", "SYS_BOOT", "SYS_CHROOT", "SYS_MODULE", "SYS_NICE", "SYS_PACCT",
		"SYS_PTRACE", "SYS_RAWIO", "SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "WAKE_ALARM",
	}
}

func (c *ContainerSpec) checkCapabilities() *Error {
	for _, list := range [...]struct {
		key   string
		names []string
	}{{"cap_add", c.CapAdd}, {"cap_drop", c.CapDrop}} {
		for _, name := range list.names {
			if slices.Contains(knownCapabilities(), name) || name == allCapabilities && list.key == "cap_drop" {
				continue
			}
			refusal := RefuseAt(KeyPath(list.key), "%s: %q is no capability", list.key, name)
			if name == allCapabilities {
				return refusal.WithHint("name those that the program needs")
			}
			return refusal.WithHint("%s", likeCapability(name))
		}
	}
	return nil
}

func likeCapability(name string) string {
	best, least := "", 4
	for _, known := range knownCapabilities() {
		if d := Distance(name, known); d < least {
			best, least = known, d
		}
	}
	if best == "" {
		return "capabilities(7) lists them; write them without CAP_"
	}
	return "did you mean \"" + best + "\"?"
}

func (c *ContainerSpec) checkLimits() *Error {
	if c.ShmBytes < 1<<12 || c.ShmBytes > maxAmount {
		return RefuseAt(KeyPath("shm"), "shm is %d bytes; it must be at least 4 KiB", c.ShmBytes)
	}
	for _, list := range [...]struct {
		key  string
		has  int
		most int
	}{
		{"rlimits", len(c.Rlimits), maxSpecList}, {"mount", len(c.Mounts), maxSpecList}, {"tmpfs", len(c.Tmpfs), maxSpecList},
		{"platforms", len(c.Platforms), maxPlatforms}, {"cap_add", len(c.CapAdd), maxSpecList},
		{"cap_drop", len(c.CapDrop), maxSpecList},
	} {
		if list.has > list.most {
			return RefuseAt(KeyPath(list.key), "%s has %d elements, at most %d are allowed", list.key, list.has, list.most)
		}
	}
	return nil
}
