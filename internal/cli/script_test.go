package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/procs"
)

// TestScripts runs testdata/*.txt, which read like terminal sessions. In addition to the commands of testscript, they
// use:
//
//	cluster [N]         start a server and N agents (default 1), named dev, n2 ...; `outspan` then talks to this
//	                    cluster, which stops with the script
//	crash NAME          kill an agent of the cluster and everything that it runs, as when a machine dies
//	rc CODE CMD...      run the command, which must exit with this code
//	until REGEXP CMD... repeat the command until it succeeds and its stdout matches
//	interrupt REGEXP CMD...  send Ctrl-C to the command as soon as its stdout matches; it must exit with code 130
//	keys FILE PATH K... check that the JSON at PATH (items[0].groups, or . for all of it) is an object with these keys
//	value FILE PATH V   check that the JSON at PATH is V, or with ! that it is not
//	set NAME FILE       set an environment variable to the first line of the file, of stdout or of stderr
//	agent NAME API GOSSIP  start another agent of the cluster, which listens on these ports
//	hold VAR            listen on a free port, and set VAR to its number
//	letgo VAR           free that port again
//	expire DIR ROLE NAME CA  replace the certificate in the data directory DIR by one for the same key that has expired;
//	                    CA/tls has the CA with its key
//	$LOOPBACK           an address 127.x on which no other script listens
//	provider            start an OpenID Connect provider, set ISSUER, and write the CA of its certificate to idp-ca.pem
//	approve SUB         wait for a code at the provider, and approve it as SUB; with no in place of SUB, deny it
//	expand FILE...      replace $NAME in the files by the values of environment variables
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata",
		RequireExplicitExec: false,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("NO_COLOR", "1")
			env.Setenv("TZ", "UTC")
			env.Values[clusterKey{}] = &scriptCluster{}
			env.Values[providerBox{}] = &providerOf{}
			env.Setenv("USER", runAs())
			env.Setenv("LOOPBACK", procs.Network()+".1")
			env.Setenv("OUTSPAN", filepath.Join(filepath.SplitList(env.Getenv("PATH"))[0], "outspan"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"cluster": startCluster, "crash": crashAgent, "agent": agentAt, "hold": holdPort, "letgo": letGo, "rc": exitsWith,
			"until": repeatUntil, "keys": hasKeys, "value": hasValue, "set": setFrom,
			"interrupt": interrupt, "expand": expandFiles, "expire": expireCertificate,
			"provider": startProvider(t), "approve": answerCode,
		},
	})
}

// runAs returns the user that the programs of scripts run as. It is the user who runs the tests, so that the programs
// can read the tests' directories.
func runAs() string {
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

// limit is the longest time that a script waits for anything.
const limit = 60 * time.Second

// command returns a command with the directory of the script and with some of the script's environment variables.
func command(ctx context.Context, ts *testscript.TestScript, name string, args ...string) *exec.Cmd {
	if name == "outspan" {
		name = ts.Getenv("OUTSPAN")
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = ts.MkAbs(".")
	for _, key := range []string{"PATH", "HOME", "TMPDIR", "NO_COLOR", "TZ", "USER", "WORK", "OUTSPAN_ADDR",
		"OUTSPAN_CACERT", "OUTSPAN_CLIENT_CERT", "OUTSPAN_CLIENT_KEY"} {
		cmd.Env = append(cmd.Env, key+"="+ts.Getenv(key))
	}
	return cmd
}

func execute(ts *testscript.TestScript, name string, args ...string) (stdout, stderr string, code int) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := command(ctx, ts, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	var exit *exec.ExitError
	switch err := cmd.Run(); {
	case errors.As(err, &exit):
		code = exit.ExitCode()
	case err != nil:
		ts.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	return out.String(), errs.String(), code
}

// record makes a command's output the stdout and stderr of the script.
func record(ts *testscript.TestScript, stdout, stderr string) {
	_, err := fmt.Fprint(ts.Stdout(), stdout)
	ts.Check(err)
	_, err = fmt.Fprint(ts.Stderr(), stderr)
	ts.Check(err)
}

func exitsWith(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: rc CODE CMD...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	stdout, stderr, code := execute(ts, args[1], args[2:]...)
	record(ts, stdout, stderr)
	if code != want {
		ts.Fatalf("exit code %d, want %d\n%s%s", code, want, stdout, stderr)
	}
}

func await(ts *testscript.TestScript, what string, look func() error) {
	err := procs.Until(context.Background(), limit, 100*time.Millisecond, func(context.Context) error { return look() })
	if err != nil {
		ts.Fatalf("waited for %s: %v", what, err)
	}
}

func repeatUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until REGEXP CMD...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	await(ts, args[0], func() error {
		stdout, stderr, code := execute(ts, args[1], args[2:]...)
		if code == 0 && want.MatchString(stdout) {
			record(ts, stdout, stderr)
			return nil
		}
		return fmt.Errorf("exit code %d\n%s%s", code, stdout, stderr)
	})
}

// outputOf collects the output of a command while it runs.
type outputOf struct {
	mu  sync.Mutex
	out bytes.Buffer
}

// Write implements io.Writer.
func (o *outputOf) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.Write(p)
}

func (o *outputOf) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.out.String()
}

func interrupt(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: interrupt REGEXP CMD...")
	}
	want, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var stdout, stderr outputOf
	cmd := command(ctx, ts, args[1], args[2:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	await(ts, args[0], func() error {
		select {
		case err := <-ended:
			ts.Fatalf("it ended by itself: %v\n%s%s", err, stdout.text(), stderr.text())
		default:
		}
		if want.MatchString(stdout.text()) {
			return nil
		}
		return fmt.Errorf("it printed %q, %q", stdout.text(), stderr.text())
	})
	ts.Check(cmd.Process.Signal(os.Interrupt))
	<-ended // the exit code shows how the command ended
	record(ts, stdout.text(), stderr.text())
	if code := cmd.ProcessState.ExitCode(); code != int(term.ExitInterrupted) {
		ts.Fatalf("exit code %d, want %d\n%s%s", code, term.ExitInterrupted, stdout.text(), stderr.text())
	}
}

// jsonAt returns the JSON value at a path in a file. The file names stdout and stderr stand for the output of the last
// command.
func jsonAt(ts *testscript.TestScript, file, path string) json.RawMessage {
	raw := json.RawMessage(ts.ReadFile(file))
	for _, step := range regexp.MustCompile(`[^.\[\]]+|\[\d+\]`).FindAllString(path, -1) {
		var err error
		if n, isIndex := strings.CutPrefix(step, "["); isIndex {
			var list []json.RawMessage
			err = json.Unmarshal(raw, &list)
			i, _ := strconv.Atoi(strings.TrimSuffix(n, "]"))
			if err == nil && i >= len(list) {
				ts.Fatalf("%s: %s has %d elements", path, step, len(list))
			}
			if err == nil {
				raw = list[i]
			}
		} else {
			var object map[string]json.RawMessage
			err = json.Unmarshal(raw, &object)
			inner, ok := object[step]
			if err == nil && !ok {
				ts.Fatalf("%s: there is no %s in %s", path, step, raw)
			}
			raw = inner
		}
		if err != nil {
			ts.Fatalf("%s: at %s: %v in %s", path, step, err, raw)
		}
	}
	return raw
}

// keysOf returns the keys of a JSON object, in the order of the text.
func keysOf(ts *testscript.TestScript, raw json.RawMessage) []string {
	dec := json.NewDecoder(bytes.NewReader(raw))
	tok, err := dec.Token()
	if err != nil || tok != json.Delim('{') {
		ts.Fatalf("not an object: %s", raw)
	}
	var keys []string
	for dec.More() {
		key, err := dec.Token()
		ts.Check(err)
		keys = append(keys, key.(string))
		var skip json.RawMessage
		ts.Check(dec.Decode(&skip))
	}
	return keys
}

func hasKeys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: keys FILE PATH KEY...")
	}
	got := keysOf(ts, jsonAt(ts, args[0], args[1]))
	for _, want := range args[2:] {
		if !slices.Contains(got, want) {
			ts.Fatalf("%s lacks %s; it has %s", args[1], want, strings.Join(got, " "))
		}
	}
}

func hasValue(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) != 3 {
		ts.Fatalf("usage: [!] value FILE PATH VALUE")
	}
	got := string(jsonAt(ts, args[0], args[1]))
	var text string
	if json.Unmarshal([]byte(got), &text) == nil {
		got = text
	}
	if (got == args[2]) == neg {
		ts.Fatalf("%s is %s, want %s (negated: %v)", args[1], got, args[2], neg)
	}
}

func setFrom(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: set NAME FILE")
	}
	line, _, _ := strings.Cut(ts.ReadFile(args[1]), "\n")
	if line == "" {
		ts.Fatalf("%s has no first line", args[1])
	}
	ts.Setenv(args[0], line)
}

func expandFiles(ts *testscript.TestScript, neg bool, args []string) {
	for _, file := range args {
		text := os.Expand(ts.ReadFile(file), func(name string) string {
			if v := ts.Getenv(name); v != "" {
				return v
			}
			return "${" + name + "}"
		})
		ts.Check(os.WriteFile(ts.MkAbs(file), []byte(text), 0o600))
	}
}
