package term

import (
	"fmt"

	"github.com/outspan/outspan/api"
)

// ExitCode is the exit code of the process. Scripts rely on the values.
type ExitCode int

// The exit codes. The codes 1 to 7 are kinds of errors, from api.ExitOf. The codes 20 to 23 are outcomes of operations.
const (
	ExitOK           ExitCode = 0
	ExitOther                 = ExitCode(api.ExitOther)
	ExitTransient             = ExitCode(api.ExitTransient)
	ExitHasChanges   ExitCode = 20  // with --exit-code: job plan or debug diff found changes
	ExitNotAllPlaced ExitCode = 21  // some instances can't be placed
	ExitFailed       ExitCode = 22  // a drain, a deployment or a transfer failed
	ExitWaitTimeout  ExitCode = 23  // --timeout passed before the work was complete
	ExitInterrupted  ExitCode = 130 // Ctrl-C
)

// Quiet is an exit code without a message on stderr, because the output already shows the reason.
type Quiet struct{ Code ExitCode }

// Error implements error.
func (q Quiet) Error() string { return fmt.Sprintf("exit code %d", q.Code) }
