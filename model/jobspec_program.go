package model

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// ContainerSpec is the program of a group as an image, in place of an ExecSpec. In Command, Args and Entrypoint, the
// agent replaces variables as in an ExecSpec.
type ContainerSpec struct {
	// Image is the name of the image, as in "registry.lan/web:1.2". In a spec that servers store, the digest of the
	// image's index follows: "registry.lan/web:1.2@sha256:...". All instances of a version run the image with that
	// digest, whatever the name stands for by then.
	Image string `json:"image" cbor:"1,keyasint"`
	// Platforms lists the platforms that the image is made for, such as "linux/amd64". Nodes of other platforms get no
	// instance. Servers fill it in if it is empty; an empty list in a stored spec means that the platforms are not known.
	Platforms []string `json:"platforms,omitempty" cbor:"2,keyasint,omitempty"`

	Entrypoint []string `json:"entrypoint,omitempty" cbor:"3,keyasint,omitempty"` // replaces that of the image
	// Command and Args replace the arguments that the image gives its entrypoint.
	Command string   `json:"command,omitempty" cbor:"4,keyasint,omitempty"`
	Args    []string `json:"args,omitempty" cbor:"5,keyasint,omitempty"`
	User    string   `json:"user,omitempty" cbor:"6,keyasint,omitempty"` // default: the user of the image

	ReadOnly bool              `json:"read_only,omitempty" cbor:"7,keyasint,omitempty"` // the root file system
	Tmpfs    []string          `json:"tmpfs,omitempty" cbor:"8,keyasint,omitempty"`     // paths at which an empty tmpfs is mounted
	Mounts   []MountSpec       `json:"mounts,omitempty" cbor:"9,keyasint,omitempty"`
	ShmBytes int64             `json:"shm_bytes,omitempty" cbor:"10,keyasint,omitempty"` // size of /dev/shm; default 64 MiB
	Rlimits  map[string]uint64 `json:"rlimits,omitempty" cbor:"11,keyasint,omitempty"`
	// CapAdd and CapDrop change the list of capabilities that each container has. The names have no prefix CAP_. "ALL" in
	// CapDrop drops those that CapAdd does not name.
	CapAdd  []string `json:"cap_add,omitempty" cbor:"12,keyasint,omitempty"`
	CapDrop []string `json:"cap_drop,omitempty" cbor:"13,keyasint,omitempty"`

	Network ContainerNetwork `json:"network,omitempty" cbor:"14,keyasint,omitempty"` // default NetworkHost
}

// ContainerNetwork is the network that a container uses. The set is closed.
type ContainerNetwork string

// The networks of containers. An expanded spec has "" in place of NetworkHost, as specs of older releases do.
const (
	NetworkHost   ContainerNetwork = "host"   // that of the node
	NetworkBridge ContainerNetwork = "bridge" // its own: an address behind a bridge, to which ports of the node lead
)

// Valid reports whether x is "" or one of the constants.
func (x ContainerNetwork) Valid() bool { return x == "" || x == NetworkHost || x == NetworkBridge }

// String returns x as a job file has it.
func (x ContainerNetwork) String() string { return string(x) }

// Bridged reports whether the group is a container with a network of its own.
func (g *GroupSpec) Bridged() bool { return g.Container != nil && g.Container.Network == NetworkBridge }

// MountSpec shows a file or directory of the node inside a container.
type MountSpec struct {
	Path     string `json:"path" cbor:"1,keyasint"`   // in the container
	Source   string `json:"source" cbor:"2,keyasint"` // on the node
	ReadOnly bool   `json:"read_only,omitempty" cbor:"3,keyasint,omitempty"`
}

const defaultShm = 64 << 20

// expand returns c with its defaults. It writes capabilities in capitals and without the prefix CAP_.
func (c ContainerSpec) expand() ContainerSpec {
	orZero(&c.ShmBytes, int64(defaultShm))
	c.CapAdd, c.CapDrop = capabilities(c.CapAdd), capabilities(c.CapDrop)
	if c.Network == NetworkHost {
		c.Network = ""
	}
	return c
}

func capabilities(names []string) []string {
	var plain []string
	for _, name := range names {
		plain = append(plain, strings.TrimPrefix(strings.ToUpper(name), "CAP_"))
	}
	return plain
}

// Users lists the users as which the group's program may run; "" is one that the agent chooses. A container counts as
// root beside its user if it mounts files of the node, asks for capabilities, or leaves the user to its image: it names
// no user, or one by name, which the image may give the number 0.
func (g *GroupSpec) Users() []string {
	c := g.Container
	if c == nil {
		return []string{g.Exec.User}
	}
	users := []string{c.User}
	user, group, hasGroup := strings.Cut(c.User, ":")
	if !ordinaryID(user) || hasGroup && !ordinaryID(group) || len(c.Mounts)+len(c.CapAdd) > 0 {
		users = append(users, "root")
	}
	return users
}

// ordinaryID reports whether text is the number of a user or group other than root.
func ordinaryID(text string) bool {
	n, err := strconv.ParseUint(text, 10, 32)
	return err == nil && n > 0
}

// ImageName returns the image's name without its digest.
func (c *ContainerSpec) ImageName() string {
	name, _, _ := strings.Cut(c.Image, "@")
	return name
}

// ImageDigest returns the digest of the image's index, such as "sha256:...", or "" if it is not known yet.
func (c *ContainerSpec) ImageDigest() string {
	_, digest, _ := strings.Cut(c.Image, "@")
	return digest
}

// RunsOn reports whether the image is made for nodes with this operating system and architecture. It returns true if
// the platforms of the image, or those of the node, are not known.
func (c *ContainerSpec) RunsOn(os, arch string) bool {
	if len(c.Platforms) == 0 || os == "" || arch == "" {
		return true
	}
	for _, p := range c.Platforms {
		if p == os+"/"+arch || strings.HasPrefix(p, os+"/"+arch+"/") {
			return true
		}
	}
	return false
}

// agentNames is the prefix of the environment variables that an agent sets for an instance.
const agentNames = "OUTSPAN_"

// checkExec refuses a command or an environment that is invalid. A command without a slash is valid, because it is
// looked up in the instance's PATH. A relative path is refused, because the instance's directory is empty at the start.
func (g *GroupSpec) checkExec() *Error {
	command := g.Exec.Command
	switch {
	case command == "":
		return RefuseAt(KeyPath("exec", "command"), "exec has no command")
	case strings.Contains(command, "/") && !strings.HasPrefix(command, "/") && !strings.HasPrefix(command, "${"):
		return RefuseAt(KeyPath("exec", "command"),
			"command %q is no absolute path, and the directory of an instance is empty at its start", command).
			WithHint("write the whole path, or only the name of a program that is in PATH")
	}
	return g.checkEnv()
}

func (g *GroupSpec) checkEnv() *Error {
	for _, name := range slices.Sorted(maps.Keys(g.Env)) {
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00") || strings.Contains(g.Env[name], "\x00"):
			return RefuseAt(KeyPath("env"), "env %q is no name of an environment variable", name)
		case strings.HasPrefix(name, agentNames):
			return RefuseAt(KeyPath("env"), "env has %s: names that begin with %s are the agent's", name, agentNames).
				WithHint("choose another name")
		}
	}
	return nil
}

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
	for _, test := range []func() *Error{c.CheckImage, c.checkPaths, c.checkCapabilities, c.checkLimits, c.checkNetwork} {
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

func (c *ContainerSpec) checkNetwork() *Error {
	if c.Network.Valid() {
		return nil
	}
	return RefuseAt(KeyPath("network"), "network is %q; it must be host or bridge", c.Network)
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
