package local

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

const (
	maxTokenFile = 4096 // bytes; a token has less than a hundred
	maxAddresses = 32   // servers on a command line
)

// refuseTokenInSight refuses a command line that contains a join token: while the command runs, every user of the
// machine sees its arguments. Code: invalid.
func refuseTokenInSight(cmd *cobra.Command, args []string) error {
	seen := slices.Clone(args)
	cmd.Flags().Visit(func(f *pflag.Flag) { seen = append(seen, f.Value.String()) })
	for _, word := range seen {
		if !pki.HoldsJoinToken(word) {
			continue
		}
		e := term.Usage("the join token is on the command line, where every user of this machine can see it")
		line := "pass it on standard input: outspan join --token-file - ADDRESS, then paste it"
		if token, err := pki.ParseJoinToken(word); err == nil {
			if token.Role() == pki.RoleServer {
				line = strings.Replace(line, "outspan join", "outspan join --server", 1)
			}
			return e.WithHint("revoke it on a server with: outspan token revoke %s; then make another one, and %s",
				token.ID(), line)
		}
		return e.WithHint("make another one on a server with: outspan token create; then %s", line)
	}
	if cmd.Flags().Changed(tokenFlag) {
		return term.Usage("%s: unknown flag: --%s", cmd.CommandPath(), tokenFlag).WithHint("did you mean: --token-file")
	}
	return nil
}

const tokenFlag = "token"

// hideTokenFlag adds a flag that is only there to be refused: other tools take a token with --token, and who types it
// here has to hear that the token was seen.
func hideTokenFlag(cmd *cobra.Command) {
	cmd.Flags().String(tokenFlag, "", "not a flag of this command: use --token-file")
	cmd.Flags().Lookup(tokenFlag).Hidden = true
}

// TokenID returns the id of a join token from its secret text. It returns any other word as it is.
func TokenID(word string) string {
	if token, err := pki.ParseJoinToken(word); err == nil {
		return token.ID()
	}
	return word
}

// readToken reads the join token from a file, or the first line of standard input if path is "-". A file that others
// can read is only warned of: the token may be theirs too. Code: invalid.
func readToken(t *term.Console, path string) (pki.JoinToken, error) {
	var text string
	var err error
	switch path {
	case "":
		return pki.JoinToken{}, term.Usage("outspan join needs --token-file").
			WithHint("make a token on a server with: outspan token create; then: outspan join --token-file - ADDRESS, and " +
				"paste it")
	case "-":
		text, err = firstLine(t.In)
	default:
		text, err = tokenFile(t, path)
	}
	if err != nil {
		return pki.JoinToken{}, term.Usage("can't read the join token from %s: %v", path, err).
			WithHint("name the file that has it with --token-file, or paste it after: outspan join --token-file - ADDRESS")
	}
	return pki.ParseJoinToken(text)
}

// firstLine reads up to a line break or the end, so that nobody has to press Ctrl-D after a token that was pasted. It
// reads one byte at a time, and takes nothing of the lines after it.
func firstLine(r io.Reader) (string, error) {
	var line []byte
	for one := make([]byte, 1); len(line) < maxTokenFile; {
		n, err := r.Read(one)
		if n == 1 {
			if one[0] == '\n' {
				break
			}
			line = append(line, one[0])
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", err
		}
	}
	return string(line), nil
}

func tokenFile(t *term.Console, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 {
		t.Note("warning: every user of this machine can read the join token in %s; change that with: chmod 600 %[1]s", path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTokenFile))
	return string(text), err
}

// checkRole refuses a token for another role than the command line asks for, so that nobody makes a server by mistake.
// Code: token_role.
func checkRole(token pki.JoinToken, server, noAgent bool) error {
	switch {
	case token.Role() == pki.RoleServer && !server:
		return model.Refuse(model.CodeTokenRole, "%s is for a server, which gets every secret of the cluster", token).
			WithHint("if this machine is to be a server, add --server; for a worker, make another token on a server with: " +
				"outspan token create --role agent")
	case token.Role() == pki.RoleAgent && server:
		return model.Refuse(model.CodeTokenRole, "%s is for a worker, and --server makes a server", token).
			WithHint("leave out --server, or make another token on a server with: outspan token create --role server")
	case noAgent && !server:
		return term.Usage("with --no-agent and without --server, this machine would be nothing").
			WithHint("leave out --no-agent, or join as a server with --server and a server's token")
	}
	return nil
}

// joinAddresses returns the addresses of servers as host:port. The default port is model.DefaultPort. Code: invalid.
func joinAddresses(args []string) ([]string, error) {
	const example = "give the address of a server, such as 10.0.0.1 or s1.lan:7640"
	if len(args) == 0 || len(args) > maxAddresses {
		return nil, term.Usage("outspan join takes the addresses of 1 to %d servers, %d given", maxAddresses, len(args)).
			WithHint(example)
	}
	addresses := make([]string, 0, len(args))
	for _, arg := range args {
		host, port, err := net.SplitHostPort(arg)
		if err != nil { // without a port
			host, port = strings.TrimSuffix(strings.TrimPrefix(arg, "["), "]"), strconv.Itoa(model.DefaultPort)
			if strings.Contains(host, ":") && net.ParseIP(host) == nil {
				host = ""
			}
		}
		n, bad := strconv.ParseUint(port, 10, 16)
		if host == "" || bad != nil || n == 0 || pki.CheckHost(host) != nil {
			return nil, term.Usage("%q is not the address of a server", model.Clip(arg)).WithHint(example)
		}
		addresses = append(addresses, net.JoinHostPort(host, port))
	}
	return addresses, nil
}
