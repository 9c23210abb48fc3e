package cli

import (
	"fmt"
	"slices"

	"github.com/outspan/outspan/model"
)

// unplacedOf is what of a job has no place to go.
type unplacedOf struct {
	job   string
	there bool // the servers have the job
	count int  // instances
	why   string
	codes []model.Code
}

func (u *unplacedOf) refusal() *model.Error {
	hint := "they are placed when there is room"
	if code := u.codes[0]; !slices.ContainsFunc(u.codes, func(c model.Code) bool { return c != code }) {
		hint = first(unplacedHints[code], hint)
	}
	if u.there {
		hint += fmt.Sprintf("; see: outspan why %s", u.job)
	}
	return model.Refuse(codeNotAllPlaced, "%d of job %s can't be placed now: %s", u.count, u.job, u.why).WithHint("%s", hint)
}

// unplacedHints are the next steps where room is not what is missing.
var unplacedHints = map[model.Code]string{
	model.CodeConstraint:   "change the constraint, or have a node meet it, such as with: outspan node label NODE KEY=VALUE",
	model.CodeNoNodes:      "add a node, or uncordon one; list them with: outspan node ls",
	model.CodeAntiAffinity: "they are placed when there is a node for each, or another value of the distinct attribute",
	model.CodeRetryLimit:   "fix what makes it fail, and run a new version",
}
