package agent

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/outspan/outspan/agent/driver"
	"github.com/outspan/outspan/model"
)

// A copied file keeps its owner if a job may run as that user on this node.
func TestOwnersThatCopiesKeep(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: an agent that is not root runs everything as its own user")
	}
	of := func(exec ExecConfig, ids string) copyOwners {
		return copyOwners{users: exec.users(), uids: newUIDs(exec.UIDs, t.TempDir(), hclog.NewNullLogger()),
			mapped: parseUIDMap(ids)}
	}
	const whole, small = "0 0 4294967295", "0 100000 65536"
	listed := ExecConfig{UIDs: testUIDs, AllowUsers: []string{"daemon"}, MinUID: 5000}
	for name, tt := range map[string]struct {
		owners copyOwners
		uid    int
		want   bool
	}{
		"any account":          {of(ExecConfig{UIDs: testUIDs}, whole), 1, true},
		"a number":             {of(ExecConfig{UIDs: testUIDs}, whole), 4321, true},
		"root":                 {of(ExecConfig{UIDs: testUIDs}, whole), 0, false},
		"root, allowed":        {of(ExecConfig{UIDs: testUIDs, AllowRoot: true}, whole), 0, true},
		"allowed by name":      {of(listed, whole), 1, true},
		"allowed by number":    {of(listed, whole), 5000, true},
		"not allowed":          {of(listed, whole), 2, false},
		"another instance's":   {of(listed, whole), testUIDs.First, false},
		"not in the namespace": {of(ExecConfig{}, small), 70_000, false},
		"in the namespace":     {of(ExecConfig{}, small), 1, true},
		"no user id":           {of(ExecConfig{}, whole), -1, false},
	} {
		got, ok := tt.owners.account(tt.uid)
		if ok != tt.want || ok && (got.UID != tt.uid || len(got.Groups) == 0) {
			t.Errorf("%s: %+v, %v, want %v", name, got, ok, tt.want)
		}
	}
}

// Copied files that do not keep their owner belong to the user that the slot's instances run as.
func TestOwnersOfSlots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("skipped: an agent that is not root runs everything as its own user")
	}
	of := func(exec ExecConfig) copyOwners {
		return copyOwners{users: exec.users(), uids: newUIDs(exec.UIDs, t.TempDir(), hclog.NewNullLogger())}
	}
	own := of(ExecConfig{UIDs: testUIDs, AllowUsers: []string{"daemon"}})
	one, err1 := own.ofSlot("db/main", 0, "")
	two, err2 := own.ofSlot("db/main", 1, "")
	again, err3 := own.ofSlot("db/main", 0, "")
	if err := errors.Join(err1, err2, err3); err != nil || one.UID == two.UID || one.UID != again.UID ||
		!testUIDs.Has(one.UID) || one.Groups[0] != nogroup {
		t.Errorf("two slots: %v, %v, then %v; %v", one, two, again, err)
	}
	if got, err := own.ofSlot("db/main", 0, "daemon"); err != nil || got.UID != 1 || got.Groups[0] != 1 {
		t.Errorf("as daemon: %+v, %v", got, err)
	}
	if got, err := of(ExecConfig{}).ofSlot("db/main", 0, ""); err != nil || got.UID != nogroup {
		t.Errorf("where nobody is shared: %+v, %v", got, err)
	}
	for user, want := range map[string]model.Code{
		"root": driver.CodeRootNotAllowed, "bin": driver.CodeUserNotAllowed, "no-such-user": driver.CodeUserUnknown,
		"300005": model.CodeInvalid,
	} {
		if got, err := own.ofSlot("db/main", 0, user); !errors.Is(err, &model.Error{Code: want}) ||
			strings.Contains(err.Error(), "%") {
			t.Errorf("as %s: %+v, %v, want %s", user, got, err, want)
		}
	}
}
