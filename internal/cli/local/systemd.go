package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/outspan/outspan/dist"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

const (
	unitName = "outspan.service"

	// startWait limits how long systemctl may take to start the unit. The process reports to systemd when it is up.
	startWait = 2 * time.Minute
	// controlWait limits each other call of systemctl.
	controlWait = 30 * time.Second

	// CodeStartFailed is the code of a process that could not be started, or that does not answer.
	CodeStartFailed model.Code = "start_failed"
)

// systemd is the service manager of this machine.
type systemd struct {
	booted  string // directory that exists where systemd runs
	units   string // directory of the units that administrators add
	control string // path or name of systemctl
}

func thisSystemd() systemd {
	return systemd{booted: "/run/systemd/system", units: "/etc/systemd/system", control: "systemctl"}
}

// usable reports whether this process may start units: it runs as root, and systemd runs.
func (s systemd) usable() bool {
	_, missing := exec.LookPath(s.control)
	return os.Geteuid() == 0 && missing == nil && exists(s.booted)
}

// start installs outspan.service with the given command line, enables it, and starts it; verb is start or restart. It
// replaces an earlier outspan.service. It blocks until the process has reported that it is up, at most startWait.
// Codes: file_error, start_failed.
func (s systemd) start(ctx context.Context, verb string, command ...string) error {
	path := filepath.Join(s.units, unitName)
	if err := durable.ReplaceBytes(path, []byte(dist.Unit(command...)), 0o644); err != nil {
		return model.Refuse(model.CodeFile, "can't write %s: %v", path, err).
			WithHint("check the disk; then run the command again, with --no-start to do without systemd")
	}
	for _, step := range [...]struct {
		most time.Duration
		args []string
	}{
		{controlWait, []string{"daemon-reload"}},
		{controlWait, []string{"enable", unitName}},
		{startWait, []string{verb, unitName}},
	} {
		if err := s.call(ctx, step.most, step.args...); err != nil {
			return err
		}
	}
	return nil
}

// call runs systemctl, for at most the given time.
func (s systemd) call(ctx context.Context, most time.Duration, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.control, args...)
	cmd.WaitDelay = time.Second // a child that keeps the output open must not block
	out, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	why := err.Error()
	if ctx.Err() != nil {
		why = "it took longer than " + most.String()
	}
	if text := strings.TrimSpace(string(out)); text != "" {
		why += ": " + model.Clip(text)
	}
	return startFailed("systemctl %s failed: %s", strings.Join(args, " "), why)
}

func startFailed(format string, args ...any) error {
	return model.Refuse(CodeStartFailed, format, args...).
		WithHint("see why with: journalctl -u outspan -n 50; then start it with: systemctl restart outspan")
}
