package driver

import (
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// What a cgroup or kernel does not have is unknown, and not 0. A limit that is not set is unknown too.
func TestUsageOfCgroups(t *testing.T) {
	v2 := map[string]string{"cpu.stat": "usage_usec 1500000\nuser_usec 1\n", "pids.current": "3\n", "pids.max": "max\n",
		"memory.current": "5000\n", "memory.stat": "anon 1\ninactive_file 1000\n", "memory.peak": "9000\n",
		"memory.max": "8192\n", "memory.events": "oom_kill 2\n"}
	v1 := map[string]string{"cpuacct.usage": "1500000000\n", "pids.current": "3\n", "pids.max": "7\n",
		"memory.usage_in_bytes": "5000\n", "memory.stat": "total_inactive_file 1000\n",
		"memory.max_usage_in_bytes": "9000\n", "memory.limit_in_bytes": "9223372036854771712\n",
		"memory.oom_control": "oom_kill 2\n"}
	two := func(dir string) controllers { return cgroup2(dir) }
	one := func(dir string) controllers { return cgroup1{"memory": dir, "cpuacct": dir, "pids": dir} }
	const cpu = 1500 * time.Millisecond
	for _, tt := range []struct {
		name    string
		open    func(dir string) controllers
		files   map[string]string
		without []string
		want    usage
	}{
		{"v2", two, v2, nil, usage{cpu, 4000, 9000, 8192, 3, Unknown, 2}},
		{"v2 before 5.19", two, v2, []string{"memory.peak"}, usage{cpu, 4000, Unknown, 8192, 3, Unknown, 2}},
		{"v2 without memory", two, v2,
			[]string{"memory.current", "memory.stat", "memory.peak", "memory.max", "memory.events"},
			usage{cpu, Unknown, Unknown, Unknown, 3, Unknown, 0}},
		{"v2 without pids", two, v2, []string{"pids.current", "pids.max"},
			usage{cpu, 4000, 9000, 8192, Unknown, Unknown, 2}},
		{"v1", one, v1, nil, usage{cpu, 4000, 9000, Unknown, 3, 7, 2}},
		{"v1 with pids alone", func(dir string) controllers { return cgroup1{"pids": dir} }, v1, nil,
			usage{Unknown, Unknown, Unknown, Unknown, 3, 7, 0}},
		{"v1 with cpu alone", func(dir string) controllers { return cgroup1{"cpuacct": dir} }, v1, nil,
			usage{cpu, Unknown, Unknown, Unknown, Unknown, Unknown, 0}},
	} {
		dir, files := t.TempDir(), maps.Clone(tt.files)
		for _, name := range tt.without {
			delete(files, name)
		}
		for name, text := range files {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := tt.open(dir).usage(); err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v, want %+v", tt.name, got, err, tt.want)
		}
	}
}
