package term

import (
	"fmt"

	"github.com/outspan/outspan/api"
)

// ExitCode is what the process ends with. Scripts rely on the table.
type ExitCode int

// The exit codes. 1 to 7 say what kind of error it was: api.ExitOf knows for each code. 20 and above are outcomes
// of work that was done.
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

// Quiet is an outcome that needs no words on stderr, because stdout has said it.
type Quiet struct{ Code ExitCode }

// Error implements error.
func (q Quiet) Error() string { return fmt.Sprintf("exit code %d", q.Code) }
