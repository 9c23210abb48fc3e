package model

import (
	"slices"
	"strings"
)

// History identifies a cluster and its line of recoveries. After a majority of the servers was lost, `server recover`
// begins a new lineage with the state of one server or a saved state. Servers of the previous lineage may return with
// other entries at the same indexes, so they must neither lead nor acknowledge anything. A restore into a running
// cluster changes the state, not the lineage. A server that has not joined a cluster has the zero History.
type History struct {
	Cluster  string   // the cluster's id
	Lineages []string // oldest first, the last one is in force; empty if no server was ever recovered
}

// maxLineages bounds the lineages that servers and agents report. The oldest are forgotten first.
const maxLineages = 16

// ParseHistory reads a result of String. Code: invalid.
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

// MaxHistory limits the bytes that ParseHistory accepts.
const MaxHistory = 512

// String returns the cluster's id and, after a recovery, the lineages: ID/L1,L2. It contains no spaces.
func (h History) String() string {
	if len(h.Lineages) == 0 {
		return h.Cluster
	}
	return h.Cluster + "/" + strings.Join(h.Lineages, ",")
}

// Lineage returns the lineage in force, or "" if no server was ever recovered.
func (h History) Lineage() string {
	if len(h.Lineages) == 0 {
		return ""
	}
	return h.Lineages[len(h.Lineages)-1]
}

// Replaces reports whether h and older belong to the same cluster, and a recovery replaced the lineage of older by that
// of h.
func (h History) Replaces(older History) bool {
	if h.Cluster != older.Cluster || len(h.Lineages) == 0 {
		return false
	}
	past := h.Lineages[:len(h.Lineages)-1]
	return older.Lineage() == "" || slices.Contains(past, older.Lineage())
}

// Same reports whether h and other have the same cluster and the same lineage.
func (h History) Same(other History) bool {
	return h.Cluster == other.Cluster && h.Lineage() == other.Lineage()
}

// Recovered returns h with a new lineage. The new lineage also replaces the lineages in others, which belong to
// recoveries that were given up.
func (h History) Recovered(lineage string, others ...string) History {
	all := slices.Concat(h.Lineages, others, []string{lineage})
	return History{h.Cluster, all[max(0, len(all)-maxLineages):]}
}

// CurrentFormat is the newest format that this program writes and reads. A server stops if its state has a newer one.
const CurrentFormat uint16 = 1

// Seen is a position in the history of the state. Of two positions, the one with the higher incarnation is newer. If
// the incarnations are equal, the one with the higher index is newer.
type Seen struct {
	Incarnation uint64 `cbor:"1,keyasint"`
	Index       uint64 `cbor:"2,keyasint"`
}

// Before reports whether s is older than t.
func (s Seen) Before(t Seen) bool {
	return s.Incarnation < t.Incarnation || s.Incarnation == t.Incarnation && s.Index < t.Index
}
