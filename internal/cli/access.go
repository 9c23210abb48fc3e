package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/client"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/rights"
)

// authToken is the command auth token, with its own verbs.
func authToken(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "token", Short: "access tokens, by which scripts call the servers without a certificate",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0])
		},
	}
	cmd.AddCommand(accessCreate(a), accessLs(a), accessRevoke(a))
	return cmd
}

func accessName(t api.AccessToken) string { return t.Name }

func byAccessName(x, y api.AccessToken) int {
	return strings.Compare(x.Name+"\x00"+string(x.ID), y.Name+"\x00"+string(y.ID))
}

func accessLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list access tokens, without their secrets", Args: term.Exactly(),
		Long: "Lists access tokens. Nobody can read the secret text of one again. One that has ended is listed for " +
			"another day.",
		Example: "outspan auth token ls\noutspan auth token ls --filter state=active -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Auth.AccessTokens(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, sorted(got, byAccessName), accessName, []term.Column[api.AccessToken]{
				{Head: "name", Cell: accessName},
				{Head: "id", Cell: func(t api.AccessToken) string { return string(t.ID) }},
				{Head: "state", Cell: func(t api.AccessToken) string { return string(t.State) }},
				{Head: "ends", Cell: func(t api.AccessToken) string { return term.Stamp(&t.Ends) }},
				{Head: "roles", Cell: func(t api.AccessToken) string { return joinedText(t.Roles) }},
				{Head: "groups", Cell: func(t api.AccessToken) string { return strings.Join(t.Groups, ", ") }},
				{Head: "created by", Wide: true, Cell: func(t api.AccessToken) string { return string(t.CreatedBy) }},
				{Head: "person", Cell: func(t api.AccessToken) string { return cmp.Or(t.Person, t.Subject) }},
			})
		},
	}
	filter.register(cmd)
	return cmd
}

func accessCreate(a *app) *cobra.Command {
	var write writeFlags
	var roles, groups []string
	var out string
	var ttl term.DurationFlag
	cmd := &cobra.Command{
		Use: "create NAME", Short: "make an access token for a script", Args: term.Exactly("NAME"),
		Long: `Makes an access token, and prints its text, which is shown only now: the servers keep a hash of it. Whoever has the text may do what the roles allow,
until the token ends or is revoked. Others see its holder as token:NAME, to which auth grant can give more roles. Servers take access tokens only with
auth { tokens = true } in their configuration.`,
		Example: "outspan auth token create ci --role deployer --ttl 7d\n" +
			"outspan auth token create ci --role deployer --out ci.token",
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := noAccessSecret(args[0]); err != nil {
				return err
			}
			body := api.AccessTokenBody{Name: args[0], Groups: groups}
			for _, role := range roles {
				body.Roles = append(body.Roles, rights.RoleName(role))
			}
			if ttl.Given {
				body.TTL = ttl.Value
			}
			keep, err := newAccessFile(out, write.dryRun)
			if err != nil {
				return err
			}
			got, err := a.client().Auth.CreateAccessToken(cmd.Context(), body, write.options())
			if err := keep.write(got.Value.Text, err); err != nil {
				return err
			}
			return a.showNewAccess(got, &write, out)
		},
	}
	write.register(cmd, "check only, make no token")
	cmd.Flags().StringArrayVar(&roles, "role", nil, "a role that the token gives; may be repeated")
	cmd.Flags().StringArrayVar(&groups, "group", nil, "a group to which the holder belongs; may be repeated")
	cmd.Flags().StringVar(&out, "out", "", "write the text into this file, which must not exist (0600), and don't show it")
	ttl.RegisterTTL(cmd, "how long the token counts (default 30d)")
	_ = cmd.RegisterFlagCompletionFunc("role", a.complete("roles")) // no error is possible: the flag exists
	return cmd
}

// accessFile is the file for the text of a new access token. It is nil if no file is wanted.
type accessFile struct{ *os.File }

// newAccessFile makes the file with mode 0600 before the token is made, so that no token is lost because there can't be
// a file. Codes: file_exists, file_error.
func newAccessFile(path string, dryRun bool) (*accessFile, error) {
	if path == "" || dryRun {
		return nil, nil
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil, model.Refuse(model.CodeFileExists, "%s exists already", path).WithHint("choose another file")
	case err != nil:
		return nil, model.Refuse(model.CodeFile, "the file for the access token can't be made: %v", err).
			WithHint("choose another directory")
	}
	return &accessFile{f}, nil
}

// write writes the text of the token. err is the error of making the token. If it is not nil, or if writing fails,
// write removes the file. Code: file_error.
func (f *accessFile) write(text string, err error) error {
	if f == nil {
		return err
	}
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(f.Name()))
	}
	_, err = f.WriteString(text + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return model.Refuse(model.CodeFile, "the access token was made, and can't be written: %v",
			errors.Join(err, os.Remove(f.Name()))).
			WithHint("revoke it with outspan auth token revoke, and make another one")
	}
	return nil
}

// showNewAccess shows a new access token. Its text is not shown if it is in the file out.
func (a *app) showNewAccess(got client.Response[api.NewAccessTokenReply], write *writeFlags, out string) error {
	t := got.Value.Token
	if t == nil {
		t = &api.AccessToken{} // no server of this version leaves it out
	}
	raw := got.Raw
	if out != "" {
		var err error
		if raw, err = json.Marshal(got.Value.AccessTokenReply); err != nil {
			return err
		}
	}
	return a.Show(term.Result{JSON: raw, Names: []string{t.Name}, Text: func(p *term.Page) {
		roles := joinedText(t.Roles)
		if len(t.Roles) == 0 {
			roles = "none of its own; give it one with: outspan auth grant ROLE " + t.Subject
		}
		p.Line("access token %s %s: until %s %s", t.Name, write.would("is made"), term.Stamp(&t.Ends),
			write.done(got.Value.Index))
		p.Line("  roles: %s", roles)
		switch {
		case write.dryRun:
		case out != "":
			p.Line("  wrote %s; use it with: OUTSPAN_TOKEN_FILE=%[1]s", out)
		default:
			p.Line("")
			p.Line("%s", got.Value.Text)
			p.Line("")
			p.Line("It is shown only this once. Keep it in a file that nobody else can read, and name that with " +
				"OUTSPAN_TOKEN_FILE.")
		}
		if !write.dryRun && !got.Value.Taken {
			p.Line("  servers take it only with auth { tokens = true } in their configuration")
		}
	}})
}

// noAccessSecret refuses an argument with the text of an access token, and does not repeat it. Code: usage.
func noAccessSecret(arg string) error {
	if !pki.HoldsAccessToken(arg) {
		return nil
	}
	return term.Usage("the argument has the text of an access token, which is a secret").
		WithHint("give its name, which auth token ls shows; whoever may have seen the text can use it: " +
			"outspan auth token revoke NAME")
}

func accessRevoke(a *app) *cobra.Command {
	var write writeFlags
	cmd := &cobra.Command{
		Use: "revoke NAME", Short: "end an access token for ever", Args: term.Exactly("NAME"),
		ValidArgsFunction: a.complete("access tokens"),
		Long: "Ends an access token at once: its requests are refused, and its streams end. NAME is its name or its id. " +
			"Roles that auth grant has given to token:NAME stay: another token of that name has them again.",
		RunE: func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if token, err := pki.ParseAccessToken(name); err == nil { // its secret must not go into a URL
				name = string(token.ID())
			}
			if err := noAccessSecret(name); err != nil {
				return err
			}
			got, err := a.client().Auth.RevokeAccessToken(cmd.Context(), name, write.options())
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: []string{name}, Text: func(p *term.Page) {
				p.Line("access token %s %s %s", name, write.would("is revoked"), write.done(got.Value.Index))
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	return cmd
}
