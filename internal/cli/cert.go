package cli

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/transport"
)

func certificateName(c api.Certificate) string { return c.Name }

func (a *app) certificateColumns() []term.Column[api.Certificate] {
	return []term.Column[api.Certificate]{
		{Head: "name", Cell: certificateName},
		{Head: "key", Cell: func(c api.Certificate) string { return c.Key[:min(len(c.Key), 16)] }},
		{Head: "created by", Cell: func(c api.Certificate) string { return string(c.CreatedBy) }},
		{Head: "expires in", Cell: func(c api.Certificate) string {
			if c.NotAfter == nil || c.State != api.CertificateActive && c.State != api.CertificateCAReplaced {
				return ""
			}
			return term.Span(max(c.NotAfter.Sub(a.Now()), 0))
		}},
		{Head: "state", Cell: func(c api.Certificate) string { return string(c.State) }},
		{Head: "reason", Wide: true, Cell: func(c api.Certificate) string { return c.Reason }},
	}
}

// madeCertificate is the result of cert create.
type madeCertificate struct {
	transport.PersonFiles
	Name     string     `json:"name"`
	NotAfter *time.Time `json:"not_after"`
	Index    uint64     `json:"index"`
}

func certCreate(a *app) *cobra.Command {
	var write writeFlags
	var dir string
	var force bool
	var ttl term.DurationFlag
	cmd := &cobra.Command{
		Use: "create NAME", Short: "make a certificate for a person or script", Args: term.Exactly("NAME"),
		Long: `Makes a key here, lets the servers sign a certificate for it, and writes both with the CA's certificate. It needs servers that make their certificates
themselves (outspan up); for others: outspan tls cert create --cli. Whoever has the key may do everything that the API offers, so make certificates for
days. Earlier certificates of the same name stay good.`,
		Example: "outspan cert create alice --dir ~/.outspan\noutspan cert create ci --ttl 7d",
		RunE: func(cmd *cobra.Command, args []string) error {
			request, err := transport.NewPersonRequest(dir, args[0], force)
			if err != nil {
				return err
			}
			body := api.CertificateBody{Request: request.PEM}
			if ttl.Given {
				body.TTL = ttl.Value
			}
			got, err := a.client().Certificates.Create(cmd.Context(), body, write.options())
			if err != nil {
				return err
			}
			made := madeCertificate{Name: args[0], Index: got.Value.Index}
			if c := got.Value.Certificate; c != nil {
				made.NotAfter = c.NotAfter
			}
			if !write.dryRun {
				if made.PersonFiles, err = request.Write(dir, got.Value.PEM, got.Value.CAPEM, force); err != nil {
					return err
				}
			}
			result, err := term.ResultOf(made, args, func(p *term.Page) {
				if write.dryRun {
					p.Line("a certificate for %s would be made %s", made.Name, write.done(made.Index))
					return
				}
				p.Line("the certificate of %s is good until %s %s", made.Name, term.Stamp(made.NotAfter), write.done(made.Index))
				p.Line("wrote %s", made.Cert)
				p.Line("wrote %s", made.Key)
				p.Line("wrote %s", made.CA)
				p.Line("  to use it: export OUTSPAN_CACERT=%s OUTSPAN_CLIENT_CERT=%s OUTSPAN_CLIENT_KEY=%s", made.CA, made.Cert,
					made.Key)
				p.Line("  and also, because no certificate counts over the socket of a server: export " +
					"OUTSPAN_ADDR=https://SERVER:7640")
				p.Line("  on another machine, copy the three files")
			})
			if err != nil {
				return err
			}
			return a.Show(result)
		},
	}
	write.register(cmd, "check only, make no certificate")
	ttl.RegisterTTL(cmd, "how long it is valid, up to 365d (default 90d)")
	cmd.Flags().StringVar(&dir, "dir", ".", "where to write")
	cmd.Flags().BoolVar(&force, "force", false, "replace files that are there")
	return cmd
}

func certLs(a *app) *cobra.Command {
	var filter listFlags
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list the certificates of people", Args: term.Exactly(),
		Long: `Lists the newest certificate of each person, and the names that were revoked. The servers accept those that are active, and those with the state
ca_replaced until that CA is dropped: their owners need another one before (outspan cert create), and ca.pem with it. Certificates that were made with
outspan tls cert create are not known here.`,
		Example: "outspan cert ls\noutspan cert ls --filter state=ca_replaced -o name",
		RunE: func(cmd *cobra.Command, _ []string) error {
			got, err := a.client().Certificates.List(cmd.Context(), filter.options())
			if err != nil {
				return err
			}
			return showList(a, got, certificateName, a.certificateColumns())
		},
	}
	filter.register(cmd)
	return cmd
}

func certRevoke(a *app) *cobra.Command {
	var write writeFlags
	var message string
	var yes bool
	cmd := &cobra.Command{
		Use: "revoke NAME", Short: "end all certificates of a person for ever", Args: term.Exactly("NAME"),
		ValidArgsFunction: a.complete("certificates"),
		Long: `Ends all certificates of a name: the servers close its connections and accept none of them any more. That includes those that were made with
outspan tls cert create. The person gets in again only with another certificate: outspan cert create.`,
		Example: "outspan cert revoke alice --yes -m 'left the team'",
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes && !write.dryRun {
				return term.Usage("revoking %s ends all certificates of this name for ever", args[0]).
					WithHint("if that is what you want, say so with --yes")
			}
			got, err := a.client().Certificates.Revoke(cmd.Context(), args[0], api.RevokeBody{Reason: message}, write.options())
			if err != nil {
				return err
			}
			return a.Show(term.Result{JSON: got.Raw, Names: args, Text: func(p *term.Page) {
				p.Line("the certificates of %s %s %s", args[0], write.would("are revoked"), write.done(got.Value.Index))
				if c := got.Value.Certificate; c != nil && c.IssuedIndex == 0 {
					p.Line("  the servers made none of this name; check it with: outspan cert ls")
				}
			}})
		},
	}
	write.register(cmd, "check only, change nothing")
	cmd.Flags().StringVarP(&message, "message", "m", "", "why, for people; stands in the event")
	cmd.Flags().BoolVar(&yes, "yes", false, "end its certificates for ever")
	return cmd
}
