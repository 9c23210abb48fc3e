package model

import (
	"strconv"
	"strings"
)

// ContainerSpec is the program of a group as an image, in place of an ExecSpec. The container uses the network of its
// node. In Command, Args and Entrypoint, the agent replaces variables as in an ExecSpec.
type ContainerSpec struct {
	// Image is the name of the image, as in "registry.lan/web:1.2". In a spec that servers store, the digest of the image's
	// index follows: "registry.lan/web:1.2@sha256:...". All instances of a version run the image with that digest,
	// whatever the name stands for by then.
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
}

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
