package cli

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// sockets are the default paths of the unix socket of a server on this machine.
var sockets = []string{"/run/outspan/api.sock", "/var/lib/outspan/api.sock"}

// connFlags say how to reach the cluster. A flag takes precedence over its environment variable. If neither has an
// address, the socket of a server on this machine is used.
type connFlags struct {
	address, caCert, cert, key, serverName, tokenFile string

	in   io.Reader            // standard input
	note func(string, ...any) // prints a line on stderr

	login    bool          // the access token is that of a login
	retryFor time.Duration // how long a call is repeated while there is no leader; 0 means the client's default
	waiting  func(why error, atMost time.Duration)
	opened   *client.Client
}

func (c *connFlags) register(fs *pflag.FlagSet) {
	fs.StringVar(&c.address, "address", "",
		"servers, comma separated: https://host:7640 or unix:///path (OUTSPAN_ADDR; default: the socket of this "+
			"machine's server)")
	fs.StringVar(&c.caCert, "ca-cert", "", "CA certificate of the cluster (OUTSPAN_CACERT)")
	fs.StringVar(&c.cert, "client-cert", "",
		"certificate made with: outspan cert create NAME, or outspan tls cert create --cli NAME (OUTSPAN_CLIENT_CERT)")
	fs.StringVar(&c.key, "client-key", "", "key of the certificate (OUTSPAN_CLIENT_KEY)")
	fs.StringVar(&c.serverName, "tls-server-name", "",
		"name to ask of the server's certificate (OUTSPAN_TLS_SERVER_NAME; default: server.outspan)")
	fs.StringVar(&c.tokenFile, "token-file", "",
		"file with an access token, or - for standard input (OUTSPAN_TOKEN_FILE; OUTSPAN_TOKEN is the token itself)")
}

// endpoints returns the addresses to try, in order. It returns an error if an address is invalid, or if none is given
// and this machine has no socket of a server.
func (c *connFlags) endpoints(env func(string) string) ([]string, error) {
	if text := term.First(c.address, env("OUTSPAN_ADDR")); text != "" {
		var list []string
		for one := range strings.SplitSeq(text, ",") {
			if one = strings.TrimSpace(one); one == "" {
				continue
			}
			if !strings.Contains(one, "://") && strings.HasPrefix(one, "/") {
				one = "unix://" + one
			}
			if refusal := checkEndpoint(one); refusal != nil {
				return nil, refusal
			}
			list = append(list, strings.TrimRight(one, "/"))
		}
		if len(list) > 0 {
			return list, nil
		}
	}
	for _, path := range sockets {
		if info, err := os.Stat(path); err == nil && info.Mode()&os.ModeSocket != 0 {
			return []string{"unix://" + path}, nil
		}
	}
	return nil, model.Refuse(model.CodeUnreachable, "no server runs on this machine: there is no socket %s",
		strings.Join(sockets, " or ")).
		WithHint("name a server with --address or OUTSPAN_ADDR, such as https://10.0.0.1:7640 or unix:///path/api.sock; if " +
			"this machine is a server, start it: systemctl start outspan; to try things out: outspan dev")
}

// checkEndpoint refuses an address that is neither an https address nor a unix socket, or that has an invalid port. The
// error has a hint on how to write the address. client.New refuses an https address without a port.
func checkEndpoint(one string) error {
	if strings.HasPrefix(one, "unix:///") {
		return nil
	}
	scheme, rest, hasScheme := strings.Cut(one, "://")
	if !hasScheme {
		scheme, rest = "", one
	}
	host, port, err := net.SplitHostPort(strings.TrimRight(rest, "/"))
	if err != nil {
		host, port = strings.TrimRight(rest, "/"), "7640"
	}
	n, notNumber := strconv.Atoi(port)
	switch {
	case notNumber != nil || n < 1 || n > 65535:
		return term.Usage("address %q: there is no port %q", one, port).
			WithHint("the port of a server is listen.port of its file, 7640 if it names none")
	case scheme == "https":
		return nil
	case scheme == "" || scheme == "http" || scheme == "tcp":
		return term.Usage("address %q is neither https://host:port nor unix:///path", one).
			WithHint("write: https://%s; outspan has no plaintext port", net.JoinHostPort(host, port))
	}
	return term.Usage("address %q is neither https://host:port nor unix:///path", one).
		WithHint("see --address and OUTSPAN_ADDR")
}

// credentials loads the certificate for https. It returns an error if one of the three files is not given. With an
// access token, only the CA is needed.
func (c *connFlags) credentials(env func(string) string, token bool) (func() *tls.Config, error) {
	files := client.Files{
		CA: term.First(c.caCert, env("OUTSPAN_CACERT")), Cert: term.First(c.cert, env("OUTSPAN_CLIENT_CERT")),
		Key: term.First(c.key, env("OUTSPAN_CLIENT_KEY")),
	}
	if token && files.Cert == "" && files.Key == "" {
		if files.CA == "" {
			return nil, term.Usage("https needs the CA of the cluster: OUTSPAN_CACERT not set").
				WithHint("copy ca.pem from somebody who has a certificate, or tls/ca.pem from the data directory of a server")
		}
		return client.LoadRoots(files.CA)
	}
	var missing []string
	for _, one := range [...]struct{ value, name string }{
		{files.CA, "OUTSPAN_CACERT"}, {files.Cert, "OUTSPAN_CLIENT_CERT"}, {files.Key, "OUTSPAN_CLIENT_KEY"},
	} {
		if one.value == "" {
			missing = append(missing, one.name)
		}
	}
	if len(missing) > 0 && files.Cert == "" && files.Key == "" && hasSignedIn(env) {
		return nil, term.Usage("you are not signed in, and there is no certificate: %s not set", term.Joined(missing)).
			WithHint("sign in: outspan login; or use a certificate, an access token, or the socket on a server")
	}
	if len(missing) > 0 {
		return nil, term.Usage("https needs a certificate: %s not set", term.Joined(missing)).
			WithHint("make one on a server with: outspan cert create NAME; without tls { managed = true }: outspan tls cert " +
				"create --cli NAME; or use the socket on a server: --address unix:///run/outspan/api.sock; with an access token, " +
				"OUTSPAN_CACERT alone is enough; where people sign in with a provider: outspan login")
	}
	return client.LoadTLS(files)
}

// config returns the configuration of the client: the servers and, if one of them has an https address, the
// credentials.
func (c *connFlags) config(env func(string) string) (client.Config, error) {
	addresses, err := c.endpoints(env)
	if err != nil {
		return client.Config{}, err
	}
	token, err := c.token(env)
	login := err == nil && token == "" && term.First(c.cert, env("OUTSPAN_CLIENT_CERT")) == ""
	if login {
		token, err = loginAt(env, addresses)
	}
	if err != nil {
		return client.Config{}, err
	}
	c.login = login && token != ""
	cfg := client.Config{Addresses: addresses, RetryFor: c.retryFor, Waiting: c.waiting, Token: token}
	if !slices.ContainsFunc(addresses, func(one string) bool { return strings.HasPrefix(one, "https://") }) {
		return cfg, nil
	}
	secure, err := c.credentials(env, token != "")
	if err != nil {
		return client.Config{}, err
	}
	cfg.TLS = func() *tls.Config {
		one := secure()
		one.ServerName = term.First(c.name(env), one.ServerName)
		return one
	}
	return cfg, nil
}

// bareConfig returns the configuration of a client that shows no certificate, for https addresses.
func (c *connFlags) bareConfig(env func(string) string, addresses []string) (client.Config, error) {
	ca := term.First(c.caCert, env("OUTSPAN_CACERT"))
	if ca == "" {
		return client.Config{}, term.Usage("https needs the CA of the cluster: OUTSPAN_CACERT not set").
			WithHint("copy it from a server, and give it with --ca-cert")
	}
	secure, err := client.LoadRoots(ca)
	if err != nil {
		return client.Config{}, err
	}
	return client.Config{Addresses: addresses, RetryFor: c.retryFor, Waiting: c.waiting, TLS: func() *tls.Config {
		one := secure()
		one.ServerName = term.First(c.name(env), one.ServerName)
		return one
	}}, nil
}

func (c *connFlags) name(env func(string) string) string {
	return term.First(c.serverName, env("OUTSPAN_TLS_SERVER_NAME"))
}

// noteEnd warns on stderr if the caller's certificate should be renewed; see transport.Lifetime.NearEnd.
func noteEnd(t *term.Console, cfg client.Config) {
	if cfg.TLS == nil {
		return
	}
	pairs := cfg.TLS().Certificates
	if len(pairs) == 0 || pairs[0].Leaf == nil {
		return
	}
	leaf := pairs[0].Leaf
	life := transport.LifetimeOf(leaf)
	_, name, _ := strings.Cut(leaf.Subject.CommonName, "/") // after the role
	switch now := t.Now(); {
	case !life.NearEnd(now):
	case now.After(life.Until):
		t.Note("warning: your certificate ended at %s; make another one with: outspan tls cert create --cli %s --force",
			life.Until.UTC().Format(time.RFC3339), name)
	default:
		t.Note("warning: your certificate ends at %s; make another one with: outspan tls cert create --cli %s --force",
			life.Until.UTC().Format(time.RFC3339), name)
	}
}

// maxAccessFile bounds how much of a file is read to find an access token.
const maxAccessFile = 4 << 10

// token returns the text of the access token, or "" if none is given. The flag takes precedence over OUTSPAN_TOKEN, and
// that over OUTSPAN_TOKEN_FILE. No secret is ever an argument, which other users of the machine could see.
func (c *connFlags) token(env func(string) string) (string, error) {
	text, from := env("OUTSPAN_TOKEN"), "OUTSPAN_TOKEN"
	if file := term.First(c.tokenFile, env("OUTSPAN_TOKEN_FILE")); file != "" && (text == "" || c.tokenFile != "") {
		var err error
		if text, err = c.readToken(file); err != nil {
			return "", model.Refuse(model.CodeInvalid, "can't read the access token: %v", err).
				WithHint("--token-file and OUTSPAN_TOKEN_FILE name a file with the text of auth token create, " +
					"or - for standard input")
		}
		from = file
	}
	if text = strings.TrimSpace(text); text == "" && from == "OUTSPAN_TOKEN" {
		return "", nil
	}
	token, err := pki.ParseAccessToken(text)
	if err != nil {
		refusal := model.Refuse(model.CodeInvalid, "%s: %s", from, model.Reason(err))
		return "", refusal.WithHint("give the text of: outspan auth token create NAME")
	}
	return token.Reveal(), nil
}

func (c *connFlags) readToken(file string) (string, error) {
	if file == "-" {
		line, err := bufio.NewReader(io.LimitReader(c.in, maxAccessFile)).ReadString('\n')
		if err == io.EOF {
			err = nil
		}
		return line, err
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }() // it was only read
	if info, err := f.Stat(); err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o004 != 0 && c.note != nil {
		c.note("warning: every user of this machine can read the access token in %s; change that with: chmod 600 %[1]s",
			file)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxAccessFile))
	return string(text), err
}
