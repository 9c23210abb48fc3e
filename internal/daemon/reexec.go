package daemon

import (
	"github.com/outspan/outspan/agent/door"
	"github.com/outspan/outspan/agent/driver"
)

// Reexec runs what agents start of this binary. No flag is parsed and nothing else is set up before it: a shim must
// stay small and must not fail over what concerns the command line.
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
