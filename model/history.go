package model

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// History identifies a cluster and its lineages. If a majority of the servers is lost, `server recover` begins a new
// lineage. Servers of the previous lineage may return with other log entries at the same indexes, so they must neither
// lead nor acknowledge anything. A restore into a running cluster begins no new lineage. A server that has not joined a
// cluster has the zero History.
type History struct {
	Cluster  string   // the cluster's id
	Lineages []string // oldest first, so the last one is current; empty before the first recovery
}

// maxLineages is the largest number of lineages in a History. Recovered drops the oldest ones.
const maxLineages = 16

// ParseHistory parses what String returned. Code: invalid.
func ParseHistory(text string) (History, *Error) {
	cluster, list, more := strings.Cut(text, "/")
	h := History{Cluster: cluster}
	if more {
		h.Lineages = strings.Split(list, ",")
	}
	if len(text) > MaxHistory || len(h.Lineages) > maxLineages || slices.Contains(h.Lineages, "") ||
		cluster == "" && more {
		return History{}, Refuse(CodeInvalid, "%.40q names no cluster and its lineages", text)
	}
	return h, nil
}

// MaxHistory is the largest number of bytes that ParseHistory accepts.
const MaxHistory = 512

// String returns the cluster's id. After a recovery, the lineages follow: ID/L1,L2. The result contains no spaces.
func (h History) String() string {
	if len(h.Lineages) == 0 {
		return h.Cluster
	}
	return h.Cluster + "/" + strings.Join(h.Lineages, ",")
}

// Lineage returns the current lineage, or "" before the first recovery.
func (h History) Lineage() string {
	if len(h.Lineages) == 0 {
		return ""
	}
	return h.Lineages[len(h.Lineages)-1]
}

// Replaces reports whether h and older belong to the same cluster, and the lineage of h replaced the lineage of older
// in a recovery.
func (h History) Replaces(older History) bool {
	if h.Cluster != older.Cluster || len(h.Lineages) == 0 {
		return false
	}
	past := h.Lineages[:len(h.Lineages)-1]
	return older.Lineage() == "" || slices.Contains(past, older.Lineage())
}

// Same reports whether h and other have the same cluster and the same current lineage.
func (h History) Same(other History) bool {
	return h.Cluster == other.Cluster && h.Lineage() == other.Lineage()
}

// Recovered returns h with lineage as the current lineage. The parameter others lists lineages of recoveries that were
// given up; the new lineage replaces these too.
func (h History) Recovered(lineage string, others ...string) History {
	all := slices.Concat(h.Lineages, others, []string{lineage})
	return History{h.Cluster, all[max(0, len(all)-maxLineages):]}
}

// Began returns the highest incarnation with which one of the lineages began; 0 if no lineage names one.
func (h History) Began() uint64 {
	var most uint64
	for _, l := range h.Lineages {
		most = max(most, LineageBegan(l))
	}
	return most
}

// NewLineage returns the name of a lineage that begins with the incarnation. random must be different each time.
func NewLineage(random string, incarnation uint64) string {
	return fmt.Sprintf("%s-%d", random, incarnation)
}

// LineageBegan returns the incarnation that NewLineage put into a name; 0 if there is none.
func LineageBegan(lineage string) uint64 {
	_, number, _ := strings.Cut(lineage, "-")
	n, err := strconv.ParseUint(number, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// CurrentFormat is the newest format that this program writes and reads. A server that meets a newer format stops.
const CurrentFormat uint16 = 1

// Seen is a position in the history of the state. A position with a higher incarnation is newer. If the incarnations
// are equal, the position with the higher index is newer.
type Seen struct {
	Incarnation uint64 `cbor:"1,keyasint"`
	Index       uint64 `cbor:"2,keyasint"`
}

// Before reports whether s is older than t.
func (s Seen) Before(t Seen) bool {
	return s.Incarnation < t.Incarnation || s.Incarnation == t.Incarnation && s.Index < t.Index
}
