package agent

import (
	"errors"
	"io/fs"
	"os"
	"time"
)

// unclean is a run of the agent that ended without a shutdown: it was killed, it crashed, or its machine went down.
type unclean struct {
	began, lastSign time.Time // lastSign is the last time at which the run is known to have been alive
	rebooted        bool      // the machine has been restarted since
}

// beginRun creates the run file, which endRun removes. If an earlier run left the file, beginRun returns what is known
// of that run, otherwise nil. Code: internal.
func (h *home) beginRun(boot string) (*unclean, error) {
	before, err := h.lastRun(boot)
	if err != nil {
		return nil, err
	}
	if err := writeLine(h.path("run"), boot); err != nil {
		return before, diskError("write "+h.path("run"), err)
	}
	return before, nil
}

func (h *home) lastRun(boot string) (*unclean, error) {
	info, err := os.Stat(h.path("run"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, diskError("look at "+h.path("run"), err)
	}
	was, err := readLine(h.path("run"))
	if err != nil {
		return nil, diskError("read "+h.path("run"), err)
	}
	run := &unclean{began: info.ModTime(), lastSign: info.ModTime(), rebooted: was != boot}
	// If the self-check wrote its file later, the run was still alive then.
	if probe, err := os.Stat(h.path("self-check")); err == nil && probe.ModTime().After(run.lastSign) {
		run.lastSign = probe.ModTime()
	}
	return run, nil
}

// endRun removes the run file. It is called when the agent shuts down properly.
func (h *home) endRun() error {
	if err := os.Remove(h.path("run")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return diskError("remove "+h.path("run"), err)
	}
	return nil
}

// noteRun records that this run begins. It logs a warning if the run before it ended without a shutdown. Errors of the
// disk are only logged.
func (a *Agent) noteRun() {
	before, err := a.home.beginRun(a.identity.BootID)
	if err != nil {
		a.log.Warn("a run that ends without a shutdown will leave no trace", "error", err)
	}
	if before != nil {
		a.log.Warn("the agent's last run ended without a shutdown", "began", before.began.UTC().Format(time.RFC3339),
			"last_sign_of_life", before.lastSign.UTC().Format(time.RFC3339), "machine_restarted_since", before.rebooted)
	}
}

func (a *Agent) noteEnd() {
	if err := a.home.endRun(); err != nil {
		a.log.Warn("the next run will take this one for one that was killed", "error", err)
	}
}
