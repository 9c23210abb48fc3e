package httpapi_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"fmt"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
	"github.com/outspan/outspan/transport/httpapi"
)

// problemsNow returns the problems that status shows, as "code subject: message -> next".
func problemsNow(t *testing.T, r *rig, query string) []string {
	t.Helper()
	found := []string{}
	for _, one := range get(t, r.cli(), "/v1/status"+query)["problems"].([]any) {
		p := one.(map[string]any)
		if p["code"] == "state_differs" { // the rig always reports this for s2
			continue
		}
		found = append(found, fmt.Sprintf("%s %s: %s -> %s", p["code"], p["subject"], p["message"], p["next"]))
	}
	return found
}

// Status shows each problem once, and says what is wrong, where, and what to do. ProblemCounts counts it.
func TestProblems(t *testing.T) {
	const day = 24 * time.Hour
	soon := transport.Lifetime{From: time.Now().Add(-300 * day), Until: time.Now().Add(5*day + time.Hour)}
	fullDisk := model.SelfReport{Gen: 1,
		Troubles: []model.Trouble{{Check: model.SelfDiskFull, Reason: "the disk is full"}}}
	only := func(name string, change func(*httpapi.ServerEntry)) func(*httpapi.ServerEntry) {
		return func(m *httpapi.ServerEntry) {
			if m.Name == name {
				change(m)
			}
		}
	}
	tests := []struct {
		name  string
		shape func(*httpapi.ServerEntry)
		apply []fsm.Command
		want  []string // parts of the line of the only problem, in order; empty means no problem
	}{
		{name: "none"},
		{name: "disk full", shape: only("s2", func(m *httpapi.ServerEntry) {
			m.Disk, m.FreeBytes, m.TotalBytes, m.Own.DataDir = api.DiskFull, 5<<20, 8<<30, "/var/lib/outspan"
		}), want: []string{
			"server_disk server/s2: its disk is full, 5 of 8192 MiB are free: it takes no new entries -> ",
			"df -h /var/lib/outspan",
		}},
		{name: "disk low", shape: only("s2", func(m *httpapi.ServerEntry) { m.Disk = api.DiskLow }),
			want: []string{"server_disk server/s2: its disk is nearly full"}},
		{name: "disk soon", shape: only("s1", func(m *httpapi.ServerEntry) { m.FreeBytes, m.TotalBytes = 1<<30, 100<<30 }),
			want: []string{"server_disk server/s1: its disk is nearly full, 1024 of 102400 MiB are free"}},
		{name: "small disk", shape: only("s1", func(m *httpapi.ServerEntry) { m.FreeBytes, m.TotalBytes = 1<<30, 4<<30 })},
		{name: "dead", shape: only("s3", func(m *httpapi.ServerEntry) { m.State = "dead" }),
			want: []string{"server_silent server/s3: it does not answer -> ", "outspan server remove id-s3"}},
		{name: "silent", shape: only("s3", func(m *httpapi.ServerEntry) { m.Silent = 6 * model.Second }),
			want: []string{"server_silent server/s3"}},
		{name: "one tick", shape: only("s3", func(m *httpapi.ServerEntry) { m.Silent = 2 * model.Second })},
		{name: "clock", shape: only("s3", func(m *httpapi.ServerEntry) { m.ClockAhead = api.ClockOffset(-model.Hour) }),
			want: []string{"server_clock server/s3: its clock is 1h behind the others' -> "}},
		{name: "certificate", shape: only("s2", func(m *httpapi.ServerEntry) { m.Own.Certificate = soon }),
			want: []string{"server_certificate server/s2: its certificate ends in 5", "outspan tls cert create --server s2 "}},
		{name: "certificate of an agent", shape: func(m *httpapi.ServerEntry) {
			m.Own.Agents = map[string]transport.Lifetime{"n2": soon, "gone": soon}
		},
			want: []string{"node_certificate node/n2: its certificate ends in 5 days", "outspan tls cert create --agent n2"}},
		{name: "renewed certificate of an agent", shape: func(m *httpapi.ServerEntry) {
			m.Own.Agents = map[string]transport.Lifetime{"n2": soon}
			if m.Name == "s2" {
				m.Own.Agents["n2"] = transport.Lifetime{From: time.Now(), Until: time.Now().Add(365 * day)}
			}
		}},
		{name: "certificate of a managed server", apply: firstKeys(),
			shape: only("s2", func(m *httpapi.ServerEntry) { m.Own.Certificate = soon }),
			want:  []string{"server_certificate server/s2: its certificate ends in 5", "-> it renews its certificate itself"}},
		{name: "certificate of a managed agent", apply: managedAgent(soon.Until),
			want: []string{"node_certificate node/n2: its certificate ends in 5 days", "itself", "outspan join"}},
		{name: "renewed certificate of a managed agent", apply: managedAgent(time.Now().Add(20 * day)),
			shape: func(m *httpapi.ServerEntry) { m.Own.Agents = map[string]transport.Lifetime{"n2": soon} }},
		{name: "certificate of a managed agent that got lost",
			apply: append(managedAgent(soon.Until), &fsm.MemberRenew{Subject: agentN2, Old: hashOf(1), Key: hashOf(2),
				NotAfter: time.Now().Add(20 * day).UnixMilli()}),
			shape: func(m *httpapi.ServerEntry) { m.Own.Agents = map[string]transport.Lifetime{"n2": soon} },
			want:  []string{"node_certificate node/n2: its certificate ends in 5 days"}},
		{name: "certificate of a revoked agent", apply: append(managedAgent(soon.Until), &fsm.MemberRevoke{Subject: agentN2}),
			shape: func(m *httpapi.ServerEntry) { m.Own.Agents = map[string]transport.Lifetime{"n2": soon} }},
		{name: "voters", shape: func(m *httpapi.ServerEntry) { m.Own.Expect = 5 },
			want: []string{"voters cluster: 3 of the servers vote, and bootstrap_expect is 5"}},
		{name: "two voters", shape: only("s3", func(m *httpapi.ServerEntry) { m.Voter = false }),
			want: []string{"voters cluster: 2 servers vote"}},
		{name: "backup", shape: only("s1", func(m *httpapi.ServerEntry) { m.Own.Saved = time.Now().Add(-9*day - time.Hour) }),
			want: []string{"backup_old cluster: the state was last saved 9 days ago -> outspan server snapshot save FILE"}},
		{name: "backup on another server", shape: func(m *httpapi.ServerEntry) {
			m.Own.Saved = time.Now().Add(-9 * day)
			if m.Name == "s2" {
				m.Own.Saved = time.Now()
			}
		}},
		{name: "keyring", apply: rotated(),
			want: []string{"keyring_not_exported cluster: the keyring was not exported since its rotation",
				"key kek2 -> on a server"}},
		{name: "exported keyring", apply: append(rotated(), &fsm.KeyringExported{Name: "data/2", Under: "kek2"})},
		{name: "new keyring", apply: firstKeys()},
		{name: "no vote", shape: only("s2", func(m *httpapi.ServerEntry) { m.NoVote = "it lacks k1" }),
			want: []string{"server_no_vote server/s2: it gets no vote: it lacks k1 -> look at its log"}},
		{name: "restore", apply: []fsm.Command{&fsm.RestoreMark{}},
			want: []string{"restore_unconfirmed cluster: ", "outspan settings resume restore --dry-run"}},
		{name: "degraded", apply: []fsm.Command{&fsm.NodeReport{ID: "01N2", Self: &fullDisk}},
			want: []string{"node_degraded node/n2: the disk is full -> outspan node status n2"}},
		{name: "unreachable",
			apply: []fsm.Command{&fsm.NodeHealth{ID: "01N2", Health: model.HealthUnreachable, BootID: "b1"}},
			want:  []string{"node_unreachable node/n2: its heartbeats arrive"}},
		{name: "a young CA", apply: keysOf(10*365*day, t)},
		{name: "a CA near its end", apply: keysOf(300*day+time.Hour, t),
			want: []string{"ca_certificate cluster: the CA: its certificate ends in 300 days"}},
		{name: "two machines with one identity", shape: func(m *httpapi.ServerEntry) {
			m.Own.Copies = []transport.Copy{{Node: "n2", First: "10.0.0.4", Second: "10.0.0.9"}, {Node: "gone"}}
		}, want: []string{"node_twice node/n2: two machines use its identity: one at 10.0.0.4, another at 10.0.0.9 -> ",
			"stop the copy", "a certificate of its own"}},
		{name: "two machines with one managed identity", apply: managedAgent(time.Now().Add(20 * day)),
			shape: func(m *httpapi.ServerEntry) { m.Own.Copies = []transport.Copy{{Node: "n2"}} },
			want:  []string{"node_twice node/n2", "outspan node revoke n2 --yes", "outspan join"}},
		{name: "offline", apply: []fsm.Command{&fsm.NodeHealth{ID: "01N2", Health: model.HealthOffline, BootID: "b1"}},
			want: []string{"node_offline node/n2: it is offline", "outspan node confirm-dead n2"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRig(t, "s1", "s2", "s3")
			r.node("01N1", "n1")
			r.node("01N2", "n2")
			r.shape = tt.shape
			for _, c := range tt.apply {
				switch c := c.(type) {
				case *fsm.NodeReport:
					c.Epoch = r.epoch(c.ID)
				case *fsm.NodeHealth:
					c.Epoch = r.epoch(c.ID)
				}
				r.apply(c)
			}
			got := problemsNow(t, r, "")
			if len(tt.want) == 0 && len(got) != 0 || len(tt.want) > 0 && len(got) != 1 {
				t.Fatalf("problems: %q", got)
			}
			rest := strings.Join(got, "\n")
			for _, part := range tt.want {
				_, after, ok := strings.Cut(rest, part)
				if !ok {
					t.Fatalf("%q has no %q", got, part)
				}
				rest = after
			}
			for _, one := range got {
				if code, _, _ := strings.Cut(one, " "); r.servers["s1"].api.ProblemCounts()[api.ProblemCode(code)] != 1 {
					t.Errorf("%s is not counted", code)
				}
			}
		})
	}
}

var agentN2 = model.Subject{Kind: model.SubjectAgent, Name: "n2"}

func hashOf(b byte) []byte { return bytes.Repeat([]byte{b}, 32) }

// firstKeys makes the cluster a managed one.
func firstKeys() []fsm.Command {
	return []fsm.Command{
		&fsm.KeyPut{Name: "data/1", Version: 1, Phase: model.KeyActive, Under: "kek", Sealed: []byte("x")},
		&fsm.KeyPut{Name: "ca/1", Version: 1, Phase: model.KeyActive, Under: "data/1", Sealed: []byte("x"),
			Public: []byte("x")}}
}

// rotated makes the cluster a managed one, with another key of the keyring than at first.
func rotated() []fsm.Command {
	return append(firstKeys(),
		&fsm.KeyPut{Name: "data/1", Version: 2, Phase: model.KeyRetired, Under: "kek1", Sealed: []byte("x")},
		&fsm.KeyPut{Name: "data/2", Version: 1, Phase: model.KeyActive, Under: "kek2", Sealed: []byte("x")})
}

// keysOf is firstKeys with a CA of ten years that has some time left.
func keysOf(left time.Duration, t *testing.T) []fsm.Command {
	t.Helper()
	const life = 10 * 365 * 24 * time.Hour
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(left - life),
		NotAfter: time.Now().Add(left), IsCA: true, BasicConstraintsValid: true}
	key := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))(t)
	root := must(x509.CreateCertificate(rand.Reader, template, template, key.Public(), key))(t)
	keys := firstKeys()
	keys[1].(*fsm.KeyPut).Public = root
	return keys
}

// managedAgent makes the cluster a managed one, and admits the agent n2 with a certificate.
func managedAgent(notAfter time.Time) []fsm.Command {
	return append(firstKeys(),
		&fsm.TokenCreate{ID: "aaaaaaaaaaaa", Role: "agent", Verifier: hashOf(9), TTL: model.Hour, Uses: 1},
		&fsm.MemberAdmit{Subject: agentN2, Key: hashOf(1), NotAfter: notAfter.UnixMilli(), Token: "aaaaaaaaaaaa",
			Verifier: hashOf(9)})
}

// Without a leader, any server answers a stale read. The missing leader is one of the problems. No suggestion needs a
// leader.
func TestProblemsWithoutALeader(t *testing.T) {
	r := newRig(t, "s1", "s2", "s3")
	r.shape = func(m *httpapi.ServerEntry) {
		if m.Name == "s3" {
			m.State = "unknown"
		}
	}
	cli := r.cli()
	r.setLeader("")
	got := fmt.Sprint(get(t, cli, "/v1/status?consistency=stale")["problems"])
	if !strings.Contains(got, "no_leader") || !strings.Contains(got, "server/s3") {
		t.Errorf("problems: %s", got)
	}
	if strings.Contains(got, "server remove") || !strings.Contains(got, "outspan server recover") {
		t.Errorf("ways out that need a leader: %s", got)
	}
}

// If many nodes are offline, eight are listed, and one more line says how many others there are.
func TestProblemsAreBounded(t *testing.T) {
	r := newRig(t)
	for i := range 30 {
		id := model.NodeID(fmt.Sprintf("01N%02d", i))
		r.node(id, fmt.Sprintf("n%02d", i))
		r.apply(&fsm.NodeHealth{ID: id, Health: model.HealthOffline, BootID: "b1", Epoch: r.epoch(id)})
	}
	got := problemsNow(t, r, "")
	rest := "node_offline nodes: 22 more like these -> outspan node ls"
	if len(got) != 9 || !strings.HasPrefix(got[0], "node_offline node/n00: ") || got[8] != rest {
		t.Errorf("problems:\n%s", strings.Join(got, "\n"))
	}
	if n := r.servers["s1"].api.ProblemCounts()[api.ProblemNodeOffline]; n != 30 {
		t.Errorf("%d offline nodes are counted", n)
	}
}

// If an old agent keeps the cluster from raising its format, a problem names the agent and says how to continue without
// it. Disabling the node ends the problem.
func TestProblemOfAnOldAgent(t *testing.T) {
	r := newRig(t)
	r.node("01N1", "n1")
	r.startWith("s2", func(c *httpapi.Config) { c.Format = model.CurrentFormat + 1 })
	r.setLeader("s2")
	want := "node_format node/n1: its agent (version unknown) reads formats up to 1: the cluster keeps to format 1 " +
		"until it is upgraded" +
		" -> upgrade its agent; to go on without it: outspan node drain n1, then: outspan node disable n1"
	if got := problemsNow(t, r, ""); !slices.Contains(got, want) {
		t.Errorf("problems: %q", got)
	}
	r.apply(&fsm.NodeIntent{ID: "01N1", Intent: model.IntentDisabled})
	if got := problemsNow(t, r, ""); strings.Contains(strings.Join(got, " "), "node_format") {
		t.Errorf("problems of a disabled node: %q", got)
	}
}

// Servers that differ in whether they have an audit log, or must record everything, are a problem. What is not known of
// a server is none.
func TestAuditLogsDiffer(t *testing.T) {
	r := newRig(t, "s1", "s2", "s3")
	modes := map[string]string{}
	r.shape = func(m *httpapi.ServerEntry) { m.Own.AuditMode = modes[m.Name] }
	for _, tt := range []struct{ s1, s2, s3, want string }{
		{"", "", "", ""},
		{"on, required", "on, required", "", ""},
		{"on, required", "off", "on", "audit_differs cluster: the servers differ in their audit logs: s1 on, required; " +
			"s2 off; s3 on -> give all servers the same block audit, and restart them one by one"},
		{"off", "off", "off", ""},
	} {
		r.mu.Lock()
		modes["s1"], modes["s2"], modes["s3"] = tt.s1, tt.s2, tt.s3
		r.mu.Unlock()
		if got := strings.Join(problemsNow(t, r, ""), "\n"); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}

// A server whose provider does not answer is a problem until it answers again.
func TestProviderDoesNotAnswer(t *testing.T) {
	r := newRig(t, "s1", "s2", "s3")
	away := "the provider https://id does not answer"
	r.shape = func(m *httpapi.ServerEntry) {
		if m.Name == "s2" {
			m.Own.SignIn = away
		}
	}
	want := "provider_failing server/s2: nobody can sign in: the provider https://id does not answer -> " +
		"look at the provider, and compare auth { oidc } of that server; " +
		"it asks again by itself. Certificates, access tokens and earlier logins go on"
	if got := strings.Join(problemsNow(t, r, ""), "\n"); got != want {
		t.Errorf("%q", got)
	}
	r.mu.Lock()
	away = ""
	r.mu.Unlock()
	if got := problemsNow(t, r, ""); len(got) != 0 {
		t.Errorf("it answers again: %q", got)
	}
}
