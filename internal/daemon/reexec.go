package daemon

import (
	"github.com/outspan/outspan/agent/door"
	"github.com/outspan/outspan/agent/driver"
)

// Reexec runs a subcommand that agents start from this binary; for any other arguments, ok is false. Call it before any
// other setup, flags included: a shim must stay small, and must not fail because of other arguments.
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
