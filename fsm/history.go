package fsm

import (
	"strings"

	"github.com/outspan/outspan/model"
)

// History returns the cluster's id, and the lineages of the servers that wrote the state.
func (c ClusterID) History() model.History {
	h := model.History{Cluster: c.ID}
	if c.Lineages != "" {
		h.Lineages = strings.Split(c.Lineages, ",")
	}
	return h
}
