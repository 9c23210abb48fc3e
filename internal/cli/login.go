package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/oidc"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/rights"
)

func loginCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "login", Short: "sign in with the OpenID Connect provider of the cluster", Args: term.Exactly(),
		Long: `Signs you in with the provider that the servers name (auth { oidc }). It prints an address and a code: open the address in a browser on any machine, and
approve the code there. The command waits for that; Ctrl-C ends it. Then later commands to these servers use your login, unless a certificate or OUTSPAN_TOKEN is given. An earlier login on this machine ends.
It needs the servers in --address or OUTSPAN_ADDR, and their CA in --ca-cert or OUTSPAN_CACERT. Your login ends after the time that the servers set. You have the rights
of the groups that the provider named at the login; sign in again after they have changed. The access token is in $XDG_CONFIG_HOME/outspan/logins, or ~/.config.`,
		Example: "outspan login --address https://10.0.0.1:7640 --ca-cert ca.pem\noutspan auth whoami",
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, ok := loginsOf(a.Env)
			if !ok {
				return noHome()
			}
			addresses, c, err := a.bareClient()
			if err != nil {
				return err
			}
			defer c.Close()
			idToken, err := a.idToken(cmd.Context(), c)
			if err != nil {
				return err
			}
			got, err := c.Auth.Login(cmd.Context(), api.LoginBody{IDToken: idToken}, client.WriteOptions{})
			if err != nil {
				return err
			}
			before, _ := store.load(addresses) // a file that can't be read is replaced
			if err := store.save(addresses, got.Value.Text); err != nil {
				return err
			}
			if before != "" {
				revokeLogin(cmd.Context(), a, addresses, before)
			}
			return a.showIdentity(got.Value.Identity)
		},
	}
}

// revokeLogin revokes the access token of a login that another one has replaced on this machine. If that fails, it says
// so on stderr: the new login counts.
func revokeLogin(ctx context.Context, a *app, addresses []string, token string) {
	cfg, err := a.conn.bareConfig(a.Env, addresses)
	if err == nil {
		cfg.Token = token
		var c *client.Client
		if c, err = client.New(cfg); err == nil {
			defer c.Close()
			_, err = c.Auth.Logout(ctx, client.WriteOptions{})
		}
	}
	if err != nil && !isCode(err, model.CodeUnauthenticated) { // otherwise it has ended before
		a.Note("warning: your earlier login goes on until its end: %s", model.Reason(err))
	}
}

// bareClient returns a client that shows neither a certificate nor an access token, and the addresses that it calls.
func (a *app) bareClient() ([]string, *client.Client, error) {
	addresses, err := a.conn.endpoints(a.Env)
	if err != nil {
		return nil, nil, err
	}
	if slices.ContainsFunc(addresses, func(one string) bool { return !strings.HasPrefix(one, "https://") }) {
		return nil, nil, term.Usage("over a unix socket, you need no login: you may do everything there").
			WithHint("name servers with --address or OUTSPAN_ADDR, such as https://10.0.0.1:7640")
	}
	cfg, err := a.conn.bareConfig(a.Env, addresses)
	if err != nil {
		return nil, nil, err
	}
	c, err := client.New(cfg)
	return addresses, c, err
}

// idToken lets the person sign in with the provider of the cluster.
func (a *app) idToken(ctx context.Context, c *client.Client) (string, error) {
	got, err := c.Auth.Providers(ctx)
	if err != nil {
		return "", err
	}
	i := slices.IndexFunc(got.Value.Items, func(p api.Provider) bool { return p.Kind == "oidc" })
	if i < 0 {
		return "", model.Refuse(model.CodeNotSupported, "nobody can sign in to this cluster: its servers have no provider").
			WithHint("an administrator sets auth { oidc { issuer and client_id } } on every server; without it: " +
				"outspan cert create")
	}
	p := got.Value.Items[i]
	flow, err := oidc.Begin(ctx, oidc.Provider{Issuer: p.Issuer, ClientID: p.ClientID, Scopes: p.Scopes,
		CAPEM: []byte(p.CAPEM)})
	if err != nil {
		return "", err
	}
	address, filled, code := flow.Page()
	fmt.Fprintf(a.Err, "Sign in with a browser:  %s\nand enter the code:      %s\n", address, code)
	if filled != "" {
		fmt.Fprintf(a.Err, "or open:                 %s\n", filled)
	}
	fmt.Fprintf(a.Err, "The code is good for %s; Ctrl-C ends the login.\n", term.Span(flow.Until().Sub(a.Now())))
	return flow.Wait(ctx)
}

// showIdentity shows who somebody is to the servers, and what they may do.
func (a *app) showIdentity(v api.Identity) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.Show(term.Result{JSON: raw, Names: []string{v.Subject}, Text: func(p *term.Page) { identityText(p, v) }})
}

// identityText shows an identity in words.
func identityText(p *term.Page, v api.Identity) {
	fields := []term.Field{{"Subject", v.Subject}, {"Roles", joinedText(v.Roles)}}
	for i, text := range mayTexts(v) {
		name := ""
		if i == 0 {
			name = "May"
		}
		fields = append(fields, term.Field{name, text})
	}
	if v.Token != nil {
		if v.Token.Person != "" {
			fields = append(fields, term.Field{"Person", v.Token.Person}, term.Field{"Groups", joinedText(v.Token.Groups)})
		}
		fields = append(fields, term.Field{"Token", fmt.Sprintf("%s, until %s", v.Token.ID, term.Stamp(&v.Token.Ends))})
	}
	p.Fields(fields...)
	noRoleYet(p, v)
}

// mayTexts says what an identity may do, on what, and by which roles: a line for all that nothing restricts, and one
// for each grant that is restricted.
func mayTexts(v api.Identity) []string {
	if v.Local {
		return []string{"everything, over the unix socket of a server"}
	}
	if len(v.Grants) == 0 && len(v.Verbs) > 0 { // an older server
		return []string{strings.Join(asTexts(v.Verbs), ", ")}
	}
	var free []rights.Verb
	var lines []string
	for _, g := range v.Grants {
		if text := limitsText(g, true); text != "" {
			lines = append(lines, fmt.Sprintf("%s: %s, by the role %s", text, strings.Join(asTexts(g.Verbs), ", "), heldText(g)))
		} else {
			free = append(free, g.Verbs...)
		}
	}
	slices.Sort(free)
	free = slices.Compact(free)
	if len(free) == len(rights.Verbs()) {
		return append([]string{"everything"}, lines...)
	}
	var all []string
	for _, verb := range rights.Verbs() {
		if slices.Contains(free, verb.Verb) {
			all = append(all, string(verb.Verb))
		}
	}
	if len(all) > 0 {
		lines = append([]string{strings.Join(all, ", ")}, lines...)
	}
	return lines
}

// noRoleYet says what to do about an identity without any role.
func noRoleYet(p *term.Page, v api.Identity) {
	if len(v.Roles) > 0 || v.Local {
		return
	}
	var groups []string
	if v.Token != nil {
		groups = v.Token.Groups
	}
	p.Line("No role is given to you yet. Ask an administrator for one of:")
	p.Line("  outspan auth grant ROLE '%s'", v.Subject)
	for _, g := range groups {
		p.Line("  outspan auth grant ROLE 'group:%s'", g)
	}
}

func logoutCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "logout", Short: "end your login, and forget its access token", Args: term.Exactly(),
		Long: `Revokes the access token of outspan login at the servers, which ends its streams within a second, and removes it from this machine. Your session at the
provider goes on.`,
		Example: "outspan logout",
		RunE: func(cmd *cobra.Command, _ []string) error {
			store, ok := loginsOf(a.Env)
			if !ok {
				return noHome()
			}
			addresses, err := a.conn.endpoints(a.Env)
			if err != nil {
				return err
			}
			token, err := store.load(addresses)
			if err != nil {
				return err
			}
			if token == "" {
				return model.Refuse(model.CodeNotFound, "you are not signed in to %s", strings.Join(addresses, ", ")).
					WithHint("sign in with: outspan login")
			}
			cfg, err := a.conn.bareConfig(a.Env, addresses)
			if err != nil {
				return err
			}
			cfg.Token = token
			c, err := client.New(cfg)
			if err != nil {
				return err
			}
			defer c.Close()
			got, err := c.Auth.Logout(cmd.Context(), client.WriteOptions{})
			over := isCode(err, model.CodeUnauthenticated) // it has ended before
			if err != nil && !over {
				return err
			}
			if err := store.remove(addresses); err != nil {
				return err
			}
			raw := got.Raw
			if over {
				raw = []byte("{}")
			}
			return a.Show(term.Result{JSON: raw, Names: addresses, Text: func(p *term.Page) {
				if over {
					p.Line("your login had ended; its access token is removed")
					return
				}
				p.Line("you are signed out %s", (&writeFlags{}).done(got.Value.Index))
			}})
		},
	}
}

// logins is the directory with the access tokens of outspan login: a file for each address of a server.
type logins struct{ dir string }

// loginsOf returns the directory of the user. ok is false if the environment names neither a directory for
// configuration nor a home.
func loginsOf(env func(string) string) (l logins, ok bool) {
	base := env("XDG_CONFIG_HOME")
	if !filepath.IsAbs(base) {
		if base = env("HOME"); !filepath.IsAbs(base) {
			return logins{}, false
		}
		base = filepath.Join(base, ".config")
	}
	return logins{filepath.Join(base, "outspan", "logins")}, true
}

// file returns the file for an address such as https://10.0.0.1:7640.
func (l logins) file(address string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '_'
	}, strings.ToLower(strings.TrimPrefix(address, "https://")))
	return filepath.Join(l.dir, "token-"+name)
}

// load returns the access token of the first address that has one, or "". Code: file if a file can't be read, or if
// others may read it.
func (l logins) load(addresses []string) (string, error) {
	for _, address := range addresses {
		if !strings.HasPrefix(address, "https://") {
			continue
		}
		file := l.file(address)
		info, err := os.Stat(file)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && info.Mode().Perm()&0o077 != 0:
			return "", model.Refuse(model.CodeFile, "others may read the access token in %s", file).
				WithHint("chmod 600 %s; if somebody may have read it: outspan logout", file)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return "", model.Refuse(model.CodeFile, "the access token of your login can't be read: %v", err).
				WithHint("sign in again: outspan login")
		}
		if token := strings.TrimSpace(string(text)); token != "" {
			return token, nil
		}
	}
	return "", nil
}

// loginAt returns the access token of the user's login to one of the addresses, or "" without one. Codes: those of
// load.
func loginAt(env func(string) string, addresses []string) (string, error) {
	l, ok := loginsOf(env)
	if !ok {
		return "", nil
	}
	return l.load(addresses)
}

// hasSignedIn reports whether the user has signed in on this machine before.
func hasSignedIn(env func(string) string) bool {
	l, ok := loginsOf(env)
	if !ok {
		return false
	}
	_, err := os.Stat(l.dir)
	return err == nil
}

// save stores an access token for all addresses. Code: file.
func (l logins) save(addresses []string, token string) error {
	if err := os.MkdirAll(l.dir, 0o700); err != nil {
		return notSaved(err)
	}
	for _, address := range addresses {
		if !strings.HasPrefix(address, "https://") {
			continue
		}
		f, err := os.CreateTemp(l.dir, "new-*") // mode 0600
		if err != nil {
			return notSaved(err)
		}
		_, err = f.WriteString(token + "\n")
		if err = errors.Join(err, f.Close()); err == nil {
			err = os.Rename(f.Name(), l.file(address))
		}
		if err != nil {
			return notSaved(errors.Join(err, os.Remove(f.Name())))
		}
	}
	return nil
}

func notSaved(err error) error {
	return model.Refuse(model.CodeFile, "the access token can't be stored: %v", err).
		WithHint("set XDG_CONFIG_HOME to a directory of yours, and sign in again: outspan login")
}

// remove removes the access tokens of all addresses. Code: file.
func (l logins) remove(addresses []string) error {
	for _, address := range addresses {
		if err := os.Remove(l.file(address)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return model.Refuse(model.CodeFile, "the access token can't be removed: %v", err)
		}
	}
	return nil
}

// noHome is the refusal of commands that need the directory of logins.
func noHome() error {
	return term.Usage("neither XDG_CONFIG_HOME nor HOME names a directory for the access token").
		WithHint("set HOME, or use an access token of a script: OUTSPAN_TOKEN_FILE")
}
