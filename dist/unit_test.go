package dist

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The unit differs from the file only in its command line, whose words are quoted for systemd.
func TestUnit(t *testing.T) {
	for _, tt := range []struct {
		command []string
		want    string
	}{
		{[]string{"/usr/local/bin/outspan", "server", "run", "--config", "/etc/outspan.d"},
			"ExecStart=/usr/local/bin/outspan server run --config /etc/outspan.d"},
		{[]string{"/opt/my $tools/outspan", "agent", "run", "--config", `/a"b\c%d$e'f`},
			`ExecStart="/opt/my $tools/outspan" agent run --config "/a\"b\\c%%d$$e'f"`},
	} {
		got := strings.Split(Unit(tt.command...), "\n")
		for i, line := range strings.Split(unit, "\n") {
			want := line
			if strings.HasPrefix(line, "ExecStart=") {
				want = tt.want
			}
			if got[i] != want {
				t.Errorf("line %d is %q, want %q", i+1, got[i], want)
			}
		}
	}
}

// systemd accepts the unit, where its checker is installed.
func TestUnitIsAccepted(t *testing.T) {
	checker, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not installed")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "outspan.service")
	text := Unit("/bin/true", "server", "run", "--config", dir+"/a $b%c")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), checker, "verify", "--man=no", path).CombinedOutput()
	if strings.Contains(string(out), path) || strings.Contains(string(out), "outspan.service:") {
		t.Errorf("systemd-analyze: %v\n%s", err, out)
	}
}
