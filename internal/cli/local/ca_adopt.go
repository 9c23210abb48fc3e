package local

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/config"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// adoptOptions are the flags of the command ca adopt.
type adoptOptions struct {
	configs []string // files and directories; default defaultConfigDir
	caKey   string   // path of a file, "-" for standard input, or ""
	dryRun  bool
}

// CAAdopt returns the command ca adopt.
func CAAdopt(t *term.Console) *cobra.Command {
	o := &adoptOptions{}
	cmd := &cobra.Command{
		Use: "adopt", Short: "prepare this machine for a cluster that makes its certificates itself", Args: term.Exactly(),
		Example: "sudo outspan ca adopt --dry-run\nsudo outspan ca adopt --ca-key ca-key.pem        # on one server\n" +
			"sudo outspan ca adopt --config /etc/outspan/agent.hcl",
		Long: `Turns a member of a cluster with certificate files of your own (tls { ca_file, cert_file, key_file }) into a managed one (tls { managed = true }), while the
cluster works. It checks that certificate, key, CA and gossip key fit together, copies them into data_dir, and changes the configuration. It restarts nothing.

Run it on each machine, and restart the processes one after the other, servers first. One server also needs the CA's key: --ca-key FILE. Once every server
is managed, the leader puts the key into the state, encrypted by the keyring, and the copy in data_dir is removed. From then on, members renew their
certificates themselves, machines join with tokens, and a member can be revoked. Agents whose machines are not adopted yet go on meanwhile, and so do people.

If it was interrupted, run it again: a machine that is adopted stays as it is.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runAdopt(cmd.Context(), t, o)
		},
	}
	fs := cmd.Flags()
	fs.StringArrayVar(&o.configs, "config", nil,
		"file, or directory of *.hcl files, as for server run and agent run (default "+defaultConfigDir+")")
	fs.StringVar(&o.caKey, "ca-key", "", "file with the private key of the CA; - for standard input. On one server only")
	fs.BoolVar(&o.dryRun, "dry-run", false, "check only: show what would be changed")
	return cmd
}

// adoptResult is the result of the command ca adopt.
type adoptResult struct {
	Name    string   `json:"name"`
	Cluster string   `json:"cluster"`
	Server  bool     `json:"server"`
	Agent   bool     `json:"agent"`
	DataDir string   `json:"data_dir"`
	Managed bool     `json:"managed_already"` // the configuration was that of a managed machine before
	CAKey   bool     `json:"ca_key"`          // the CA's key is in data_dir until the state has it
	Config  string   `json:"config"`          // file of the configuration that is changed, or ""
	Edit    []string `json:"edit"`            // what a person must change in the configuration
	DryRun  bool     `json:"dry_run"`
}

func runAdopt(ctx context.Context, t *term.Console, o *adoptOptions) error {
	if len(o.configs) == 0 {
		o.configs = []string{defaultConfigDir}
	}
	cfg, err := config.Load(o.configs...)
	if err != nil {
		return err
	}
	var key []byte
	if o.caKey != "" {
		if key, err = ReadFile(t, o.caKey, maxCAKey); err != nil {
			return adoptRefused(model.CodeInvalid, "%s", model.Reason(err)).
				WithHint("check the path of --ca-key, and who may read the file")
		}
	}
	found, err := o.look(cfg, key)
	if err != nil {
		return err
	}
	if !o.dryRun {
		if err := found.write(ctx); err != nil {
			return err
		}
	}
	return o.show(t, found)
}

// write copies the files, makes the keyring if this machine has the CA's key, and changes the configuration last.
// Codes: file_error, certificate_invalid, those of keyring.Open.
func (a *adoption) write(ctx context.Context) error {
	managed, ring := transport.ManagedDir(a.cfg.DataDir), filepath.Join(a.cfg.DataDir, keyring.FileName)
	err := managed.Lock(ctx, func() error {
		if err := managed.Write(a.files); err != nil {
			return err
		}
		if a.files.CA == nil {
			return nil
		}
		return makeKeyring(ring)
	})
	if err != nil {
		return err
	}
	if err := ownLike(a.cfg.DataDir, managed.Path(), ring); err != nil {
		return err
	}
	return a.edit.write()
}

func (o *adoptOptions) show(t *term.Console, a *adoption) error {
	r := adoptResult{Name: a.cfg.Name, Cluster: a.cfg.Cluster, Server: a.cfg.Server != nil, Agent: a.cfg.Agent != nil,
		DataDir: a.cfg.DataDir, Managed: a.managed, CAKey: a.files.CA != nil, Config: a.edit.path, Edit: a.edit.byHand,
		DryRun: o.dryRun}
	if r.Edit == nil {
		r.Edit = []string{}
	}
	s, err := term.ResultOf(r, []string{r.Name}, func(p *term.Page) { r.print(p, a) })
	if err != nil {
		return err
	}
	return t.Show(s)
}

func (r *adoptResult) print(p *term.Page, a *adoption) {
	who := fmt.Sprintf("%s of the cluster %s", roleText(a.cfg), a.cfg.Cluster)
	is := func(verb string) string {
		if r.DryRun {
			return "would be"
		}
		return verb
	}
	if r.Managed && !r.CAKey {
		p.Line("%s is managed already; nothing was changed", who)
	} else {
		p.Line("%s: the files for tls { managed = true } %s in %s", who, is("are"), transport.ManagedDir(r.DataDir).Path())
	}
	if r.CAKey {
		p.Line("  the CA's key %s there too, until the state has it; your file stays where it is", is("is"))
	}
	if r.Config != "" {
		p.Line("  configuration: %s %s changed", r.Config, is("is"))
		p.Line("  the one before %s kept: %s", is("is"), r.Config+beforeAdopt)
	}
	if len(r.Edit) > 0 {
		p.Line("  configuration: change it yourself, because its keys are in several files: %s", strings.Join(r.Edit, "; "))
	}
	if r.DryRun {
		return
	}
	p.Line("  next: restart this process, and wait until outspan status shows no problem; then the next machine")
	if r.Server && !r.CAKey && !r.Managed {
		p.Line("  one server needs the CA's key: outspan ca adopt --ca-key FILE")
	}
}

// maxCAKey is the number of bytes that are read of a file with a CA's key.
const maxCAKey = 64 << 10

func adoptRefused(code model.Code, format string, args ...any) *model.Error {
	return model.Refuse(code, "nothing was changed: "+format, args...)
}
