package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
)

// runtimeText describes the container runtime of a node. It returns "" if the node has none.
func runtimeText(r *api.Runtime) string {
	switch {
	case r == nil:
		return ""
	case r.Down != "":
		return fmt.Sprintf("containerd %s does not answer: %s", r.Version, r.Down)
	}
	return "containerd " + r.Version
}

// pinned returns a copy of spec with the images that a plan found.
func pinned(spec model.JobSpec, images []api.GroupImage) model.JobSpec {
	spec.Groups = slices.Clone(spec.Groups)
	for i := range spec.Groups {
		g := &spec.Groups[i]
		for _, image := range images {
			if image.Group == model.NewGroupID(spec.Name, g.Name) && g.Container != nil {
				c := *g.Container
				c.Image, c.Platforms = image.Image+"@"+image.Digest, image.Platforms
				g.Container = &c
			}
		}
	}
	return spec
}

// imageLines says which images the groups of a job run.
func imageLines(p *term.Page, images []api.GroupImage) {
	for _, image := range images {
		text := fmt.Sprintf("  %s: image %s is %s", image.Group, image.Image, image.Digest)
		if len(image.Platforms) > 0 {
			text += " (" + strings.Join(image.Platforms, ", ") + ")"
		}
		p.Line("%s", text)
	}
}
