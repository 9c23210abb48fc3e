package agent

import (
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// transferWord is the newest report of one transfer, and whether the servers have it.
type transferWord struct {
	latest model.TransferReport
	acked  bool
}

// setTransfer records the newest state of this node's part of a transfer, and reports it if it changed. It does not
// block.
func (r *reporter) setTransfer(t model.TransferReport) {
	r.mu.Lock()
	known, ok := r.moves[t.ID]
	if !ok || known.latest != t {
		r.moves[t.ID] = transferWord{latest: t}
	}
	r.mu.Unlock()
	r.kick()
}

// keepTransfers forgets the reports of transfers that are not among the servers' orders any more.
func (r *reporter) keepTransfers(orders []transport.TransferOrder) {
	wanted := make(map[model.TransferID]bool, len(orders))
	for _, o := range orders {
		wanted[o.ID] = true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.moves {
		if !wanted[id] {
			delete(r.moves, id)
		}
	}
}

// transferWords returns the reports that the servers lack, or all reports if all is true. The caller holds r.mu.
func (r *reporter) transferWords(all bool) []model.TransferReport {
	var list []model.TransferReport
	for _, id := range sortedKeys(r.moves) {
		if w := r.moves[id]; all || !w.acked {
			list = append(list, w.latest)
		}
	}
	return list
}

func (r *reporter) bookTransfers(sent []model.TransferReport) {
	for _, t := range sent {
		if w, ok := r.moves[t.ID]; ok && w.latest == t {
			w.acked = true
			r.moves[t.ID] = w
		}
	}
}
