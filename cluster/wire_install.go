package cluster

import (
	"bytes"
	"errors"
	"io"
	"strconv"

	"github.com/hashicorp/raft"
)

// installMark precedes the number that a leader gives each request to install a snapshot. Both are put into the field
// Peers, which raft reads only for snapshots of version 0.
const installMark = "outspan-install "

var errOvertaken = errors.New("a later snapshot of the same leader was taken already")

// InstallSnapshot implements raft.Transport. It numbers the requests, because after a timeout a leader repeats a
// request over another connection, and the first request may arrive after the second. See overtaken.
func (t *peerTransport) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest,
	resp *raft.InstallSnapshotResponse, data io.Reader) error {
	marked := *args
	marked.Peers = strconv.AppendUint([]byte(installMark), t.installs.Add(1), 10)
	return t.NetworkTransport.InstallSnapshot(id, target, &marked, resp, data)
}

// installSeen is the newest request to install a snapshot that was passed to raft.
type installSeen struct {
	term   uint64
	leader string
	number uint64
}

// overtaken reports whether a request to install a snapshot arrived after a later request of the same leader and term.
// If not, it records the request as the newest. raft would accept an overtaken request: the state would go back, and
// the log would lose entries that the leader believes to be there. Only pump's goroutine calls overtaken.
func (s *installSeen) overtaken(rpc raft.RPC) bool {
	req, ok := rpc.Command.(*raft.InstallSnapshotRequest)
	if !ok {
		return false
	}
	digits, marked := bytes.CutPrefix(req.Peers, []byte(installMark))
	number, err := strconv.ParseUint(string(digits), 10, 64)
	if !marked || err != nil {
		return false // from a server that doesn't number its requests
	}
	now := installSeen{req.Term, string(req.ID), number}
	if now.term == s.term && now.leader == s.leader && now.number < s.number {
		return true
	}
	if now.term >= s.term { // raft refuses older terms
		*s = now
	}
	return false
}
