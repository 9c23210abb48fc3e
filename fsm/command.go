package fsm

import "github.com/outspan/outspan/model"

// Command is one change of the state. apply edits the State that it gets, which is always a fork. apply must finish its
// checks before its first edit, so that a refused command changes nothing.
type Command interface {
	Kind() Kind
	apply(*State) error
}

// Kind is a command's number on disk. A number is never reused.
type Kind uint16

// Entry is the content of one entry of the log.
type Entry struct {
	Format  uint16          // the format that the proposer used
	At      model.Time      // cluster time at the proposer
	Wall    int64           // wall clock of the proposer in Unix ms, shown to people
	Term    uint64          // the entry is refused in any other term; 0, as in users' requests, allows every term
	Actor   model.Actor     // the origin of the write
	Request model.RequestID // the caller's request id; if it is empty, a repeated request is applied again
	Body    string          // hash of the request's body; set if Request is set
	Groups  [][]Command     // each group is applied or refused as a whole
	// Rights is 1 + the State.RightsIndex by which the leader judged the caller, or 0 if nobody was judged. The entry is
	// refused if the rights have changed since.
	Rights uint64
}

// Result is the outcome of one group of commands.
type Result struct {
	Index   uint64
	Refusal *model.Error // nil means done
	Replay  bool         // this is the stored outcome of an earlier request with the same id
}

type kindInfo struct {
	kind   Kind
	name   string
	format uint16 // the format that introduced the command
	make   func() Command
}

// kinds lists every command, sorted by number.
var kinds = [...]kindInfo{
	{1, "cluster.init", 1, func() Command { return new(ClusterInit) }},
	{2, "format.raise", 1, func() Command { return new(FormatRaise) }},
	{3, "restore.mark", 1, func() Command { return new(RestoreMark) }},
	{4, "settings.set", 1, func() Command { return new(SettingsSet) }},
	{5, "hold.set", 1, func() Command { return new(HoldSet) }},
	{6, "leader.begin", 1, func() Command { return new(LeaderBegin) }},
	{10, "node.register", 1, func() Command { return new(NodeRegister) }},
	{11, "node.health", 1, func() Command { return new(NodeHealth) }},
	{12, "node.report", 1, func() Command { return new(NodeReport) }},
	{13, "node.intent", 1, func() Command { return new(NodeIntent) }},
	{14, "node.label", 1, func() Command { return new(NodeLabel) }},
	{15, "node.ack", 1, func() Command { return new(NodeAck) }},
	{16, "node.confirm_dead", 1, func() Command { return new(NodeConfirmDead) }},
	{17, "node.forget", 1, func() Command { return new(NodeForget) }},
	{20, "instance.place", 1, func() Command { return new(InstancePlace) }},
	{21, "instance.stop", 1, func() Command { return new(InstanceStop) }},
	{22, "instance.kill", 1, func() Command { return new(InstanceKill) }},
	{23, "instance.mark", 1, func() Command { return new(InstanceMark) }},
	{24, "instance.restart", 1, func() Command { return new(InstanceRestart) }},
	{25, "instance.prepare", 1, func() Command { return new(InstancePrepare) }},
	{26, "instance.release", 1, func() Command { return new(InstanceRelease) }},
	{27, "instance.fenced", 1, func() Command { return new(InstanceFenced) }},
	{28, "instance.move", 1, func() Command { return new(InstanceMove) }},
	{29, "instance.adopt", 1, func() Command { return new(InstanceAdopt) }},
	{30, "drain.start", 1, func() Command { return new(DrainStart) }},
	{31, "drain.turn", 1, func() Command { return new(DrainTurn) }},
	{32, "drain.end", 1, func() Command { return new(DrainEnd) }},
	{33, "drain.pause", 1, func() Command { return new(DrainPause) }},
	{34, "drain.cancel", 1, func() Command { return new(DrainCancel) }},
	{40, "job.submit", 1, func() Command { return new(JobSubmit) }},
	{41, "job.revert", 1, func() Command { return new(JobRevert) }},
	{42, "job.scale", 1, func() Command { return new(JobScale) }},
	{43, "job.stop", 1, func() Command { return new(JobStop) }},
	{44, "job.restart", 1, func() Command { return new(JobRestart) }},
	{50, "deployment.step", 1, func() Command { return new(DeploymentStep) }},
	{51, "deployment.promote", 1, func() Command { return new(DeploymentPromote) }},
	{52, "deployment.wait", 1, func() Command { return new(DeploymentWait) }},
	{60, "budget.set", 1, func() Command { return new(BudgetSet) }},
	{61, "budget.remove", 1, func() Command { return new(BudgetRemove) }},
	{62, "class.set", 1, func() Command { return new(ClassSet) }},
	{63, "class.remove", 1, func() Command { return new(ClassRemove) }},
	{70, "transfer.start", 1, func() Command { return new(TransferStart) }},
	{71, "transfer.step", 1, func() Command { return new(TransferStep) }},
	{72, "transfer.cancel", 1, func() Command { return new(TransferCancel) }},
	{73, "backup.forget", 1, func() Command { return new(BackupForget) }},
	{80, "key.put", 1, func() Command { return new(KeyPut) }},
	{81, "key.drop", 1, func() Command { return new(KeyDrop) }},
	{82, "token.create", 1, func() Command { return new(TokenCreate) }},
	{83, "token.revoke", 1, func() Command { return new(TokenRevoke) }},
	{84, "member.admit", 1, func() Command { return new(MemberAdmit) }},
	{85, "member.renew", 1, func() Command { return new(MemberRenew) }},
	{86, "member.revoke", 1, func() Command { return new(MemberRevoke) }},
	{87, "member.found", 1, func() Command { return new(MemberFound) }},
	{88, "member.holds", 1, func() Command { return new(MemberHolds) }},
	{90, "newcomer.wait", 1, func() Command { return new(NewcomerWait) }},
	{91, "newcomer.approve", 1, func() Command { return new(NewcomerApprove) }},
	{92, "newcomer.reject", 1, func() Command { return new(NewcomerReject) }},
	{93, "person.admit", 1, func() Command { return new(PersonAdmit) }},
	{94, "person.revoke", 1, func() Command { return new(PersonRevoke) }},
	{95, "keyring.exported", 1, func() Command { return new(KeyringExported) }},
	{96, "agents.found", 1, func() Command { return new(AgentsFound) }},
	{104, "role.set", 1, func() Command { return new(RoleSet) }},
	{105, "role.remove", 1, func() Command { return new(RoleRemove) }},
	{106, "binding.add", 1, func() Command { return new(BindingAdd) }},
	{107, "binding.remove", 1, func() Command { return new(BindingRemove) }},
	{108, "access.create", 1, func() Command { return new(AccessTokenCreate) }},
	{109, "access.revoke", 1, func() Command { return new(AccessTokenRevoke) }},
	{111, "access.login", 1, func() Command { return new(AccessLogin) }},
	{113, "image.want", 1, func() Command { return new(ImageWant) }},
	{114, "image.drop", 1, func() Command { return new(ImageDrop) }},
}

// Kind implements Command.
func (*ClusterInit) Kind() Kind { return 1 }

// Kind implements Command.
func (*FormatRaise) Kind() Kind { return 2 }

// Kind implements Command.
func (*RestoreMark) Kind() Kind { return 3 }

// Kind implements Command.
func (*SettingsSet) Kind() Kind { return 4 }

// Kind implements Command.
func (*HoldSet) Kind() Kind { return 5 }

// Kind implements Command.
func (*LeaderBegin) Kind() Kind { return 6 }

// Kind implements Command.
func (*NodeRegister) Kind() Kind { return 10 }

// Kind implements Command.
func (*NodeHealth) Kind() Kind { return 11 }

// Kind implements Command.
func (*NodeReport) Kind() Kind { return 12 }

// Kind implements Command.
func (*NodeIntent) Kind() Kind { return 13 }

// Kind implements Command.
func (*NodeLabel) Kind() Kind { return 14 }

// Kind implements Command.
func (*NodeAck) Kind() Kind { return 15 }

// Kind implements Command.
func (*NodeConfirmDead) Kind() Kind { return 16 }

// Kind implements Command.
func (*NodeForget) Kind() Kind { return 17 }

// Kind implements Command.
func (*InstancePlace) Kind() Kind { return 20 }

// Kind implements Command.
func (*InstanceStop) Kind() Kind { return 21 }

// Kind implements Command.
func (*InstanceKill) Kind() Kind { return 22 }

// Kind implements Command.
func (*InstanceMark) Kind() Kind { return 23 }

// Kind implements Command.
func (*InstanceRestart) Kind() Kind { return 24 }

// Kind implements Command.
func (*InstancePrepare) Kind() Kind { return 25 }

// Kind implements Command.
func (*InstanceRelease) Kind() Kind { return 26 }

// Kind implements Command.
func (*InstanceFenced) Kind() Kind { return 27 }

// Kind implements Command.
func (*InstanceMove) Kind() Kind { return 28 }

// Kind implements Command.
func (*InstanceAdopt) Kind() Kind { return 29 }

// Kind implements Command.
func (*DrainStart) Kind() Kind { return 30 }

// Kind implements Command.
func (*DrainTurn) Kind() Kind { return 31 }

// Kind implements Command.
func (*DrainEnd) Kind() Kind { return 32 }

// Kind implements Command.
func (*DrainPause) Kind() Kind { return 33 }

// Kind implements Command.
func (*DrainCancel) Kind() Kind { return 34 }

// Kind implements Command.
func (*JobSubmit) Kind() Kind { return 40 }

// Kind implements Command.
func (*JobRevert) Kind() Kind { return 41 }

// Kind implements Command.
func (*JobScale) Kind() Kind { return 42 }

// Kind implements Command.
func (*JobStop) Kind() Kind { return 43 }

// Kind implements Command.
func (*JobRestart) Kind() Kind { return 44 }

// Kind implements Command.
func (*DeploymentStep) Kind() Kind { return 50 }

// Kind implements Command.
func (*DeploymentPromote) Kind() Kind { return 51 }

// Kind implements Command.
func (*DeploymentWait) Kind() Kind { return 52 }

// Kind implements Command.
func (*BudgetSet) Kind() Kind { return 60 }

// Kind implements Command.
func (*BudgetRemove) Kind() Kind { return 61 }

// Kind implements Command.
func (*ClassSet) Kind() Kind { return 62 }

// Kind implements Command.
func (*ClassRemove) Kind() Kind { return 63 }

// Kind implements Command.
func (*TransferStart) Kind() Kind { return 70 }

// Kind implements Command.
func (*TransferStep) Kind() Kind { return 71 }

// Kind implements Command.
func (*TransferCancel) Kind() Kind { return 72 }

// Kind implements Command.
func (*BackupForget) Kind() Kind { return 73 }

// Kind implements Command.
func (*KeyPut) Kind() Kind { return 80 }

// Kind implements Command.
func (*KeyDrop) Kind() Kind { return 81 }

// Kind implements Command.
func (*TokenCreate) Kind() Kind { return 82 }

// Kind implements Command.
func (*TokenRevoke) Kind() Kind { return 83 }

// Kind implements Command.
func (*MemberAdmit) Kind() Kind { return 84 }

// Kind implements Command.
func (*MemberRenew) Kind() Kind { return 85 }

// Kind implements Command.
func (*MemberRevoke) Kind() Kind { return 86 }

// Kind implements Command.
func (*MemberFound) Kind() Kind { return 87 }

// Kind implements Command.
func (*MemberHolds) Kind() Kind { return 88 }

// Kind implements Command.
func (*NewcomerWait) Kind() Kind { return 90 }

// Kind implements Command.
func (*NewcomerApprove) Kind() Kind { return 91 }

// Kind implements Command.
func (*NewcomerReject) Kind() Kind { return 92 }

// Kind implements Command.
func (*PersonAdmit) Kind() Kind { return 93 }

// Kind implements Command.
func (*PersonRevoke) Kind() Kind { return 94 }

// Kind implements Command.
func (*KeyringExported) Kind() Kind { return 95 }

// Kind implements Command.
func (*AgentsFound) Kind() Kind { return 96 }

// Kind implements Command.
func (*RoleSet) Kind() Kind { return 104 }

// Kind implements Command.
func (*RoleRemove) Kind() Kind { return 105 }

// Kind implements Command.
func (*BindingAdd) Kind() Kind { return 106 }

// Kind implements Command.
func (*BindingRemove) Kind() Kind { return 107 }

// Kind implements Command.
func (*AccessTokenCreate) Kind() Kind { return 108 }

// Kind implements Command.
func (*AccessTokenRevoke) Kind() Kind { return 109 }

// Kind implements Command.
func (*AccessLogin) Kind() Kind { return 111 }

// Kind implements Command.
func (*ImageWant) Kind() Kind { return 113 }

// Kind implements Command.
func (*ImageDrop) Kind() Kind { return 114 }
