package api

import (
	"strings"
	"time"

	"github.com/outspan/outspan/model"
)

// MemberAlive is the state of a member that answers in gossip.
const MemberAlive = "alive"

// Member is one server.
type Member struct {
	Name     string         `json:"name"`
	ID       model.ServerID `json:"id"`
	Address  string         `json:"address" doc:"host:port of its API"`
	Role     string         `json:"role" enum:"voter,nonvoter"`
	Leader   bool           `json:"leader"`
	Voter    bool           `json:"voter"`
	State    string         `json:"state" enum:"alive,suspect,failed,left,unknown"`
	IndexLag uint64         `json:"index_lag" doc:"log entries behind the leader"`
	Answers  bool           `json:"answers" doc:"it answered the leader's last tick, or it leads; always false if another server than the leader answers this request"`
	Version  string         `json:"version"`
	Gossip   string         `json:"gossip" doc:"host:port where agents and servers join the gossip"`

	NoVote string `json:"no_vote,omitempty" doc:"why the leader gives it no vote; only the leader knows"`

	ClockAhead ClockOffset `json:"clock_ahead" doc:"how far its clock is ahead of the median of the servers' clocks; behind if negative"`

	MemberMachine
}

// MemberMachine is the state of a server's machine, as last reported to the leader.
type MemberMachine struct {
	Disk            Disk           `json:"disk" enum:"enough,low,full,unknown" doc:"low: it does not lead; full: it takes no entries"`
	FreeBytes       int64          `json:"disk_free_bytes" doc:"not known if disk_total_bytes is 0"`
	TotalBytes      int64          `json:"disk_total_bytes"`
	CertificateEnds *time.Time     `json:"certificate_ends" doc:"null: not known"`
	Silent          model.Duration `json:"silent" doc:"for how long it has not answered the leader"`
}

// Disk says how much room is left on a server's disk.
type Disk string

// The values of Disk.
const (
	DiskEnough  Disk = "enough"
	DiskLow     Disk = "low"
	DiskFull    Disk = "full"
	DiskUnknown Disk = "unknown"
)

// ClockOffset is how many milliseconds a clock is ahead of another. It is negative if the clock is behind. It is not a
// model.Duration, because model.ParseDuration accepts no sign.
type ClockOffset model.Duration

// MarshalText implements encoding.TextMarshaler, for JSON: "1s", "-3ms".
func (o ClockOffset) MarshalText() ([]byte, error) { return []byte(model.Duration(o).String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler, for JSON.
func (o *ClockOffset) UnmarshalText(text []byte) error {
	size, behind := strings.CutPrefix(string(text), "-")
	d, err := model.ParseDuration(size)
	if err != nil {
		return err
	}
	if behind {
		d = -d
	}
	*o = ClockOffset(d)
	return nil
}

// MemberReply is the answer to a change of membership.
type MemberReply struct {
	Items []Member `json:"items" doc:"the servers after the change"`
	Index uint64   `json:"index"`
}

// JoinBody makes a server contact another server.
type JoinBody struct {
	Address string `json:"address" doc:"host:port of the other server's gossip"`
}

// TransferBody hands leadership to another server.
type TransferBody struct {
	To string `json:"to,omitempty" doc:"id or name; default: the most current server"`
}
