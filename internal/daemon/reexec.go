package daemon

import (
	"github.com/outspan/outspan/agent/door"
	"github.com/outspan/outspan/agent/driver"
)

// Reexec runs the subcommands that agents start from this binary. ok is false for other arguments. Call it before
// parsing flags or any other setup: a shim must stay small and must not fail over anything on the command line.
func Reexec(args []string) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case "shim":
		return driver.ShimMain(args[1:]), true
	case "shim-init":
		return driver.InitMain(args[1:]), true
	case "door":
		return door.Main(args[1:]), true
	}
	return 0, false
}
