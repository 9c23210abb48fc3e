package term

import (
	"fmt"

	"github.com/outspan/outspan/api"
)

// ExitCode is the exit code of the process. Scripts rely on this table.
type ExitCode int

// The exit codes. 1 to 7 say what kind of error it was: see api.ExitOf. 20 and above are outcomes of work that was
// done.
const (
	ExitOK           ExitCode = 0
	ExitOther                 = ExitCode(api.ExitOther)
	ExitTransient             = ExitCode(api.ExitTransient)
	ExitHasChanges   ExitCode = 20  // job plan --exit-code
	ExitNotAllPlaced ExitCode = 21  // not all can be placed
	ExitFailed       ExitCode = 22  // a drain or deployment ended Failed
	ExitWaitTimeout  ExitCode = 23  // waiting ended, the work goes on
	ExitInterrupted  ExitCode = 130 // Ctrl-C
)

// Quiet is an outcome without a message on stderr, because stdout has it already.
type Quiet struct{ Code ExitCode }

// Error implements error.
func (q Quiet) Error() string { return fmt.Sprintf("exit code %d", q.Code) }
