package daemon

import (
	"github.com/outspan/outspan/agent/door"
	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/agent/driver/inside"
)

// Reexec runs a subcommand that agents start from this binary, such as a shim, and returns its exit code. For any other
// arguments it does nothing, and ok is false. Call it before any other setup, including the parsing of flags. Then a
// shim uses little memory, and no setup that it does not need can fail.
func Reexec(args []string) (code int, ok bool) {
	if len(args) == 0 {
		return 0, false
	}
	switch args[0] {
	case "shim":
		return driver.ShimMain(args[1:]), true
	case "shim-init":
		return driver.InitMain(args[1:]), true
	case inside.Subcommand:
		return inside.Main(), true
	case "shim-enter":
		return driver.EnterMain(args[1:]), true
	case "door":
		return door.Main(args[1:]), true
	}
	return 0, false
}
