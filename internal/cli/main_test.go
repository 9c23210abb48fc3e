package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/outspan/outspan/internal/daemon"
)

// TestMain makes the test binary usable as the program. Scripts run it as outspan, and agents start it as a shim or
// door.
func TestMain(m *testing.M) {
	if code, ok := daemon.Reexec(os.Args[1:]); ok {
		os.Exit(code)
	}
	testscript.Main(m, map[string]func(){"outspan": program, "sign-by": signBy})
}

// program does the same as main of cmd/outspan, except that a second Ctrl-C does not end the process at once.
func program() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	code := Run(ctx, daemon.Program{Version: "dev", Exit: os.Exit}, os.Args[1:])
	stop()
	os.Exit(code)
}
