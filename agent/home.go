package agent

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

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
//	lock         locked (flock) by the agent while it runs
//	node         the node's id
//	servers      host:port of each server that the last registration named
//	peers/       for each group with an instance here, the list of its instances: JOB/GROUP and JOB/GROUP.json, mode 0644
//	services     the last known exposed services and their backends
//	cluster      the cluster and the lineage that the node follows
//	refused      exists while the servers refuse this agent because another agent runs its node
//	run          exists while the agent runs, and after the agent was killed
//	self-check   test file of the disk check
//	journal      what is known of each instance, and the index of the newest assignments that the agent acted on
//	door/        the door's control socket and its log
//	driver/      the driver's files of each instance: launch, exit status, logs and working directory
//	volumes/     local volumes: JOB/GROUP/SLOT/NAME
type home struct {
	dir     string
	lock    *os.File
	records *records
	node    model.NodeID
}

// openHome opens the data directory dir, or creates it. It makes the directory private and locks it, reads or creates
// the node's id, and opens the journal. Codes: agent_running, internal (an error of the disk, or the id is damaged),
// those of openRecords.
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

// makePrivate sets mode 0700 if other users can read or write dir. It does not undo mode 0711, which letThrough sets.
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

// letThrough sets mode 0711, so that other users can pass through the data directory to their own directories below it,
// but can't list or read it. It is called only for an instance that runs as another user. All files and directories
// that are not for instances have mode 0600 or 0700.
func (h *home) letThrough() error {
	if err := os.Chmod(h.dir, 0o711); err != nil {
		return diskError("let instances of other users pass through "+h.dir, err)
	}
	return nil
}

// identify reads the node's id, or creates an id at the first start. It refuses a damaged id and does not replace it,
// because with a new id the cluster would see a new node and consider the old node dead. Code: internal.
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

// cluster returns the cluster and the lineages that this node follows, as written by model.History.String. It returns
// "" before the first registration, or if the file can't be read.
func (h *home) cluster() string {
	known, err := readLine(h.path("cluster"))
	if err != nil {
		return ""
	}
	return known
}

// followCluster records the cluster in the servers' answer, in the form of model.History.String. After the first
// registration it accepts only the same cluster, with the same lineage or one that replaces it, so the node never
// follows servers of a replaced lineage again. Codes: conflict, invalid (answered is malformed), internal (an error of
// the disk).
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

// noteAnswer records how the servers answered a registration. If they refused this agent because another agent runs its
// node, it creates the file refused. If they accepted this agent, with a nil answer, it removes the file. After any
// other error it does nothing. Code: internal.
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

// KnownServers returns the addresses (host:port) of the servers that the agent with the data directory dataDir knew
// last. It returns nil before the agent's first registration, or if the file can't be read.
func KnownServers(dataDir string) []string {
	text, err := os.ReadFile(filepath.Join(dataDir, "servers"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}

// Running reports whether an agent runs on the data directory dataDir. It is false if this user can't find out. To an
// agent that starts at the same moment the lock may seem taken.
func Running(dataDir string) bool {
	lock, err := os.Open(filepath.Join(dataDir, "lock"))
	if err != nil {
		return false
	}
	defer lock.Close()
	err = unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB)
	return errors.Is(err, unix.EWOULDBLOCK)
}

// LastRegistration returns when the agent with the data directory dataDir last registered at the servers. It is zero
// before the first registration.
func LastRegistration(dataDir string) time.Time {
	info, err := os.Stat(filepath.Join(dataDir, "servers"))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// keepServers saves the servers' addresses for the next start of the agent, because the servers in the configuration
// may be gone at that time. It writes nothing if no server has an address. If the addresses are in the file already, it
// only notes the time; see LastRegistration.
func (h *home) keepServers(servers []transport.ServerInfo) error {
	var addresses []string
	for _, s := range servers {
		if s.APIAddress != "" {
			addresses = append(addresses, s.APIAddress)
		}
	}
	if len(addresses) == 0 {
		return nil
	}
	if slices.Equal(addresses, KnownServers(h.dir)) {
		return os.Chtimes(h.path("servers"), time.Time{}, time.Now())
	}
	return durable.ReplaceBytes(h.path("servers"), []byte(strings.Join(addresses, "\n")+"\n"), 0o600)
}

// close closes the journal and unlocks the directory. It unlocks explicitly, because a child process between fork and
// exec may have a copy of the descriptor. Without the unlock, the copy would keep the lock.
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

// born returns when the data directory was created, in ns since 1970. It returns 0 if the file system does not record
// this time.
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

// writeLine replaces a file with one line. After a power cut the file has either the old or the new content.
func writeLine(path, line string) error { return durable.ReplaceBytes(path, []byte(line+"\n"), 0o600) }

func diskError(what string, err error) error {
	refused := model.Refuse(model.CodeInternal, "%s: %v", what, err)
	if errors.Is(err, unix.ENOSPC) {
		return refused.WithHint("free some space there, or name another data_dir")
	}
	return refused
}
