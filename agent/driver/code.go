package driver

import (
	"github.com/outspan/outspan/model"
)

// Codes of the errors that this package returns. A Reason is not such a code. It says why an instance ended.
const (
	CodeInvalidSpec    model.Code = "invalid_spec"     // a Spec, Config or argument can't be used; the message says why
	CodeRootNotAllowed model.Code = "root_not_allowed" // the instance would run as uid 0, and Config.AllowRoot is false
	CodeUserNotAllowed model.Code = "user_not_allowed" // Config does not allow the user, or the agent must be root for it
	CodeUserUnknown    model.Code = "user_unknown"     // the node has no such user
	CodeStartFailed    model.Code = "start_failed"     // the program or command did not start; the message names the step
	CodeStillRunning   model.Code = "still_running"    // the instance or a command runs, or is being started or removed
	CodeShimSilent     model.Code = "shim_silent"      // the shim did not answer, so its state is not known; try again
	CodeSignalFailed   model.Code = "signal_failed"    // the kernel refused the signal
	CodeDriverLocked   model.Code = "driver_locked"    // another agent uses the same directory
	CodeStateFailed    model.Code = "state_failed"     // an operation on this machine failed; the message names it
	CodeNoContainers   model.Code = "no_containers"    // this node can't run containers; the message says why
	CodeMountMissing   model.Code = "mount_missing"    // a container mounts a path that this node does not have
	CodePortTaken      model.Code = "port_taken"       // the port is in use or reserved
)

// CodeNotRunning means that the instance or its lease has ended.
const CodeNotRunning = model.CodeNotRunning

// Reason says why an instance ended.
type Reason string

// The reasons. All but ReasonExited and ReasonStopped are failures, whatever the exit code is.
const (
	ReasonExited           Reason = "exited"             // the program exited by itself; see the exit code
	ReasonSignaled         Reason = "signaled"           // a signal that this package did not send ended the program
	ReasonStopped          Reason = "stopped"            // the instance was asked to stop, and ended within the grace
	ReasonKilled           Reason = "killed"             // the instance was asked to stop without grace
	ReasonKilledAfterGrace Reason = "killed_after_grace" // processes were killed, because they still ran after the grace
	ReasonOOMKilled        Reason = "oom_killed"         // the kernel killed the program at its memory cap
	ReasonFenced           Reason = "fenced"             // the instance's lease ran out
	ReasonStartFailed      Reason = "start_failed"       // the program could not be started
	ReasonShimLost         Reason = "shim_lost"          // the shim died, and the processes that it left were killed
	ReasonHostRebooted     Reason = "host_rebooted"      // the machine was restarted while the instance ran
)

// Valid reports whether r is one of the reasons above.
func (r Reason) Valid() bool {
	switch r {
	case ReasonExited, ReasonSignaled, ReasonStopped, ReasonKilled, ReasonKilledAfterGrace,
		ReasonOOMKilled, ReasonFenced, ReasonStartFailed, ReasonShimLost, ReasonHostRebooted:
		return true
	}
	return false
}

// String returns the reason as it is stored and reported.
func (r Reason) String() string { return string(r) }
