package httpapi

import (
	"fmt"

	"github.com/danielgtaylor/huma/v2"

	"github.com/outspan/outspan/fsm"
)

// factsDocument replaces api.Facts in the OpenAPI document.
type factsDocument struct{}

// Schema implements huma.SchemaProvider.
func (factsDocument) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{
		Type:                 huma.TypeObject,
		Description:          "what its role check last said: true, false, numbers, texts; empty: nothing is known",
		AdditionalProperties: true,
	}
}

// member returns the identity that an instance keeps across replacements, which the agent sets as OUTSPAN_MEMBER_ID. It
// returns "" if replacements in the group get new identities.
func (r *reading) member(i *fsm.Instance) string {
	spec, ok := r.Spec(i.Group, i.Version)
	if !ok || spec.Replacement.Identity != "same" {
		return ""
	}
	job, group := i.Group.Split()
	return fmt.Sprintf("%s-%s-%d", job, group, i.Slot)
}
