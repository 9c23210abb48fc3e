package agent

import (
	"strings"
	"testing"

	"github.com/outspan/outspan/agent/driver"
)

// An agent checks at its start which user ids it can use. If its user namespace lacks the default range, instances
// share the user nobody, and the agent logs a warning. A configured range that can't be used is an error.
func TestRangeOfUsersThatIsNotMapped(t *testing.T) {
	const whole, small = "         0          0 4294967295\n", "0 100000 65536\n"
	named := driver.UIDRange{First: 200_000, Last: 265_535}
	for name, tt := range map[string]struct {
		exec    ExecConfig
		euid    int
		uidMap  string
		want    driver.UIDRange
		warning string
		refused string
	}{
		"default":    {uidMap: whole, want: DefaultUIDs()},
		"off":        {exec: ExecConfig{SharedUser: true}, uidMap: whole},
		"off, small": {exec: ExecConfig{SharedUser: true}, uidMap: small},
		"named":      {exec: ExecConfig{UIDs: named}, uidMap: whole, want: named},
		"not root":   {euid: 1000, uidMap: whole},
		"not root, named": {exec: ExecConfig{UIDs: named}, euid: 1000, uidMap: whole,
			refused: "needs an agent that runs as root"},
		"default, small":    {uidMap: small, warning: "2100000000-2100065535"},
		"named, small":      {exec: ExecConfig{UIDs: named}, uidMap: small, refused: "200000-265535"},
		"named, in the map": {exec: ExecConfig{UIDs: named}, uidMap: "0 100000 65536\n200000 300000 65536\n", want: named},
		"named, in two": {exec: ExecConfig{UIDs: named},
			uidMap: "230000 330000 35536\n0 100000 65536\n200000 300000 30000\n", want: named},
		"named, with a hole": {exec: ExecConfig{UIDs: named}, uidMap: "200000 300000 30000\n230001 330001 35535\n",
			refused: "user namespace"},
		"named, cut":     {exec: ExecConfig{UIDs: named}, uidMap: "200000 300000 65535\n", refused: "user namespace"},
		"nothing mapped": {uidMap: "", warning: "share nobody"},
	} {
		got, warning, err := tt.exec.instanceUIDs(tt.euid, parseUIDMap(tt.uidMap))
		if got != tt.want || (warning != "") != (tt.warning != "") || !strings.Contains(warning, tt.warning) {
			t.Errorf("%s: %v, warning %q; want %v, %q", name, got, warning, tt.want, tt.warning)
		}
		if (err != nil) != (tt.refused != "") || err != nil && !strings.Contains(err.Error(), tt.refused) {
			t.Errorf("%s: error %v, want %q", name, err, tt.refused)
		}
	}
	if uids, _, err := (ExecConfig{}).instanceUIDs(0, nil); uids != DefaultUIDs() || err != nil {
		t.Errorf("a kernel without user namespaces: %v, %v", uids, err)
	}
}
