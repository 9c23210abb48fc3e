package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/oklog/ulid/v2"
	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// CodeAgentRuns says that another agent uses the same data directory.
const CodeAgentRuns model.Code = "agent_running"

// home is the agent's data directory, locked for this process.
//
//	lock       held (flock) by the agent
//	node       the node's id
//	servers    host:port of each server of the last registration
//	peers/     the instances of each group that has one here: JOB/GROUP and JOB/GROUP.json, readable for all
//	services   the exposed services and their backends as they were known last
//	cluster    the cluster and the lineage that the node follows
//	refused    exists while the servers refuse this agent because another agent runs its node
//	run        exists while the agent runs; it stays when the agent is killed
//	journal    what is known of each instance, and the newest assignments that were acted on
//	door/      the control socket of the process that listens on exposed ports, and what it printed
//	driver/    what the driver keeps of each instance: its shim, exit status, logs
//	volumes/   local volumes: job/group/slot/name
type home struct {
	dir     string
	lock    *os.File
	records *records
	node    model.NodeID
}

// openHome makes the directory, takes other users' access to it away, and locks it. Codes: agent_running, internal (the
// disk refused), those of openRecords.
func openHome(dir string, log hclog.Logger) (*home, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, diskError("make "+dir, err)
	}
	if err := makePrivate(dir); err != nil {
		return nil, err
	}
	h := &home{dir: dir}
	err := h.takeLock()
	if err == nil {
		err = h.identify()
	}
	if err == nil {
		h.records, err = openRecords(h.path("journal"), log)
	}
	if err != nil {
		h.close()
		return nil, err
	}
	return h, nil
}

func (h *home) takeLock() error {
	lock, err := os.OpenFile(h.path("lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return diskError("open the lock of "+h.dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return model.Refuse(CodeAgentRuns, "another agent uses %s", h.dir).
				WithHint("stop it, or give this one its own data_dir")
		}
		return diskError("lock "+h.dir, err)
	}
	h.lock = lock
	return nil
}

// makePrivate takes read and write access from other users. They may still pass through: see letThrough.
func makePrivate(dir string) error {
	info, err := os.Stat(dir)
	if err == nil && info.Mode().Perm()&0o066 != 0 {
		err = os.Chmod(dir, 0o700)
	}
	if err != nil {
		return diskError("close "+dir+" to other users", err)
	}
	return nil
}

// letThrough allows other users to pass through the data directory to a directory of their own, without listing or
// reading it. It is called only when an instance runs as another user. Everything that is not for instances is 0700 or
// 0600 anyway.
func (h *home) letThrough() error {
	if err := os.Chmod(h.dir, 0o711); err != nil {
		return diskError("let instances of other users pass through "+h.dir, err)
	}
	return nil
}

// identify reads the node's id, or makes one at the first start. A damaged id is not replaced: the cluster would see a
// new node, and consider the old one dead.
func (h *home) identify() error {
	text, err := readLine(h.path("node"))
	if errors.Is(err, fs.ErrNotExist) {
		text = strings.ToLower(ulid.Make().String())
		err = writeLine(h.path("node"), text)
		if err != nil {
			return diskError("write "+h.path("node"), err)
		}
	}
	if err == nil {
		_, err = ulid.ParseStrict(strings.ToUpper(text))
	}
	if err != nil {
		return model.Refuse(model.CodeInternal, "the node's identity in %s can't be read: %v", h.path("node"), err).
			WithHint("restore the file, or remove it to join as a new node and then: outspan node confirm-dead the old one")
	}
	h.node = model.NodeID(text)
	return nil
}

// cluster returns the history that this node follows (model.History as text); "" before the first registration.
func (h *home) cluster() string {
	known, err := readLine(h.path("cluster"))
	if err != nil {
		return ""
	}
	return known
}

// followCluster makes the node follow the cluster of its first registration. Later it accepts only that cluster, with
// the same lineage or one that replaces it. So the node never follows servers of a replaced lineage again. Code:
// conflict.
func (h *home) followCluster(answered string) error {
	now, refusal := model.ParseHistory(answered)
	if refusal != nil {
		return refusal
	}
	text, err := readLine(h.path("cluster"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("read "+h.path("cluster"), err)
	}
	known, refusal := model.ParseHistory(text)
	switch {
	case refusal != nil:
		return model.Refuse(model.CodeConflict, "%s is damaged: %v", h.path("cluster"), refusal).
			WithHint("write the cluster id of outspan status into it")
	case err == nil && known.Same(now):
		return nil
	case err == nil && known.Cluster != now.Cluster:
		return model.Refuse(model.CodeConflict, "node %s belongs to cluster %s, but cluster %s answered", h.node,
			known.Cluster, now.Cluster).
			WithHint("check the agent's servers; to move the node, stop the agent and give it an empty data_dir")
	case err == nil && !now.Replaces(known):
		return model.Refuse(model.CodeConflict,
			"node %s follows the lineage %q of its cluster, but a server of the lineage %q answered, which does not replace it",
			h.node, known.Lineage(), now.Lineage()).
			WithHint("stop the servers that the recovery left behind, or take them off the agent's list of servers")
	}
	if err := writeLine(h.path("cluster"), answered); err != nil {
		return diskError("write "+h.path("cluster"), err)
	}
	return nil
}

// noteAnswer makes the file refused when the servers refuse this agent because another agent runs its node. It removes
// the file when they accept this agent. Other failures change nothing.
func (h *home) noteAnswer(answer error) error {
	var refused *model.Error
	var err error
	switch {
	case answer == nil && h.refused():
		err = os.Remove(h.path("refused"))
	case errors.As(answer, &refused) && refused.Code == model.CodeNodeTaken && !h.refused():
		err = writeLine(h.path("refused"), refused.Message)
	}
	if err != nil {
		return diskError("write "+h.path("refused"), err)
	}
	return nil
}

// refused reports whether the servers refused this agent because another agent runs its node, and have not accepted it
// since.
func (h *home) refused() bool {
	_, err := os.Stat(h.path("refused"))
	return err == nil
}

// KnownServers returns host:port of each server that the agent of a data directory knew last; none before its first
// registration.
func KnownServers(dataDir string) []string {
	text, err := os.ReadFile(filepath.Join(dataDir, "servers"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// keepServers keeps the servers for the next start: those in the configuration may be gone by then.
func (h *home) keepServers(servers []transport.ServerInfo) error {
	var addresses []string
	for _, s := range servers {
		if s.APIAddress != "" {
			addresses = append(addresses, s.APIAddress)
		}
	}
	if len(addresses) == 0 || slices.Equal(addresses, KnownServers(h.dir)) {
		return nil
	}
	return durable.ReplaceBytes(h.path("servers"), []byte(strings.Join(addresses, "\n")+"\n"), 0o600)
}

// close unlocks explicitly: a child between fork and exec has a copy of the descriptor, and with it the lock.
func (h *home) close() {
	if h.records != nil {
		if err := h.records.Close(); err != nil {
			h.records.log.Error("journal did not close cleanly", "error", err)
		}
	}
	if h.lock != nil {
		_ = unix.Flock(int(h.lock.Fd()), unix.LOCK_UN)
		h.lock.Close()
	}
}

// born returns when the directory was made, in ns since 1970; 0 if its file system does not record it.
func (h *home) born() int64 {
	var s unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, h.dir, 0, unix.STATX_BTIME, &s); err != nil || s.Mask&unix.STATX_BTIME == 0 {
		return 0
	}
	return s.Btime.Sec*1e9 + int64(s.Btime.Nsec)
}

func (h *home) path(name string) string { return filepath.Join(h.dir, name) }

func readLine(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// writeLine writes a file of one line. After a power cut the file has either the old or the new content.
func writeLine(path, line string) error { return durable.ReplaceBytes(path, []byte(line+"\n"), 0o600) }

func diskError(what string, err error) error {
	refused := model.Refuse(model.CodeInternal, "%s: %v", what, err)
	if errors.Is(err, unix.ENOSPC) {
		return refused.WithHint("free some space there, or name another data_dir")
	}
	return refused
}
