package local

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/procs"
	"github.com/outspan/outspan/model"
)

// fakeSystemd returns a systemd whose systemctl is a script. Each call of it appends its arguments to the file log.
func fakeSystemd(t *testing.T, body string) (s systemd, log string) {
	t.Helper()
	dir := t.TempDir()
	log = filepath.Join(dir, "log")
	s = systemd{booted: dir, units: dir, control: filepath.Join(dir, "systemctl")}
	script := fmt.Sprintf("#!/bin/sh\necho \"$*\" >>%s\n%s\n", log, body)
	if err := os.WriteFile(s.control, []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return s, log
}

func upFor(t *testing.T, system systemd) *upOptions {
	dir := t.TempDir()
	return &upOptions{setupFlags: setupFlags{command: "up", name: "s1", advertise: procs.Network() + ".1",
		configDir: filepath.Join(dir, "a b"), dataDir: filepath.Join(dir, "data"), system: system}}
}

func noSteps(context.Context, string, string) []string { return []string{"next"} }

// With systemd, the unit is written, enabled and started, before the command waits for the server. A machine that is
// set up but not started is only started.
func TestUpStartsTheUnit(t *testing.T) {
	s, log := fakeSystemd(t, "")
	o := upFor(t, s)
	for range 2 {
		if err := os.Remove(log); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		var out, notes bytes.Buffer
		console := &term.Console{Out: &out, Err: &notes, Env: func(string) string { return "" }, Now: time.Now}
		asked := ""
		calls := SetupCalls{JoinSteps: noSteps, Ready: func(ctx context.Context, socket string) error {
			asked = socket
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("the wait for the server has no bound")
			}
			return nil
		}}
		if err := runUp(t.Context(), console, calls, o); err != nil {
			t.Fatal(err)
		}
		if os.Geteuid() != 0 { // only root can use systemd
			if asked != "" || !strings.Contains(out.String(), "start it with") {
				t.Errorf("asked %q, printed %s", asked, out.String())
			}
			return
		}
		if want := filepath.Join(o.dataDir, "api.sock"); asked != want {
			t.Errorf("it waits for %q, want %q", asked, want)
		}
		if got, want := fileText(t, log),
			"daemon-reload\nenable outspan.service\nstart outspan.service\n"; got != want {
			t.Errorf("systemctl was called with\n%swant\n%s", got, want)
		}
		if unit := fileText(t, filepath.Join(s.units, "outspan.service")); !strings.Contains(unit,
			fmt.Sprintf(" server run --config %q\n", o.configDir)) {
			t.Errorf("the unit is\n%s", unit)
		}
		if !strings.Contains(out.String(), "server and agent s1 of the cluster outspan runs at "+o.advertise) {
			t.Errorf("printed %s", out.String())
		}
	}
}

func fileText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// An error of systemctl, or a server that does not answer, names the log.
func TestUpStartFails(t *testing.T) {
	if s, _ := fakeSystemd(t, ""); !s.usable() {
		t.Skip("only root can use systemd")
	}
	for body, want := range map[string]string{
		"echo no such thing >&2; [ $1 != start ]": "systemctl start outspan.service failed: exit status 1: no such thing",
		"": "does not answer: silence",
	} {
		s, _ := fakeSystemd(t, body)
		console := &term.Console{Out: &bytes.Buffer{}, Err: &bytes.Buffer{}, Env: func(string) string { return "" }}
		silent := SetupCalls{JoinSteps: noSteps, Ready: func(context.Context, string) error { return errors.New("silence") }}
		err := runUp(t.Context(), console, silent, upFor(t, s))
		refusal, ok := errors.AsType[*model.Error](err)
		if !ok || refusal.Code != CodeStartFailed || !strings.Contains(refusal.Message, want) ||
			!strings.Contains(refusal.Hint, "journalctl -u outspan") {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

// TestUpHelper runs in the process that TestUpOfAnotherUser starts.
func TestUpHelper(t *testing.T) {
	dir := os.Getenv("TEST_UP_DIR")
	if dir == "" {
		t.Skip("it is only run by TestUpOfAnotherUser")
	}
	o := &upOptions{setupFlags: setupFlags{name: "s1", advertise: "127.0.0.1", configDir: "/outspan-test.d",
		dataDir: dir + "/data"}}
	fmt.Println(runUp(t.Context(), &term.Console{}, SetupCalls{JoinSteps: noSteps}, o))
	o.configDir, o.dataDir = dir+"/conf", "/outspan-test"
	fmt.Println(runUp(t.Context(), &term.Console{}, SetupCalls{JoinSteps: noSteps}, o))
	o.dataDir, o.noAgent = dir+"/inner/data", true
	fmt.Println(runUp(t.Context(), &term.Console{}, SetupCalls{JoinSteps: noSteps}, o))
}

// A user who can't write the directories gets the next step, and nothing is made.
func TestUpOfAnotherUser(t *testing.T) {
	dir, err := os.MkdirTemp("", "outspan-up-") //nolint:usetesting // other users can't enter t.TempDir
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "bin")
	if err := os.WriteFile(binary, []byte(fileText(t, os.Args[0])), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, mode := range map[string]os.FileMode{dir: 0o777, filepath.Join(dir, "inner"): 0o555} {
		if err := errors.Join(os.MkdirAll(path, mode), os.Chmod(path, mode)); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run=^TestUpHelper$")
	cmd.Env, cmd.Dir = append(os.Environ(), "TEST_UP_DIR="+dir), "/"
	if os.Geteuid() == 0 {
		const nobody = 65534
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{"/outspan-test.d", "/outspan-test ", dir + "/inner/data"} {
		if !strings.Contains(string(out)+" ", "this user can't write to "+want) {
			t.Errorf("the output does not refuse %s:\n%s", want, out)
		}
	}
	if !strings.Contains(string(out), "run it with sudo") {
		t.Errorf("the output names no next step:\n%s", out)
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) != 2 {
		t.Errorf("the directory has %v, %v", all, err)
	}
}
