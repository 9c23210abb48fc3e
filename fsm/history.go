package fsm

import (
	"strings"

	"github.com/outspan/outspan/model"
)

// History returns the id and the lineages of the cluster, as the state has them.
func (c ClusterID) History() model.History {
	h := model.History{Cluster: c.ID}
	if c.Lineages != "" {
		h.Lineages = strings.Split(c.Lineages, ",")
	}
	return h
}
