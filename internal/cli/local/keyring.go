package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// KeyringCalls are the parts of the command server keyring that need the API, which this package can't call.
type KeyringCalls struct {
	// List shows the keys, and which servers have them.
	List func(context.Context) error
	// Exported records that an export of the keyring in a data directory has these keys. It blocks for a few seconds.
	Exported func(ctx context.Context, dataDir string, keys []string) error
}

// ServerKeyring returns the command server keyring, with those commands that work on the files of a server that may
// run. Without a data directory, its command ls asks the servers.
func ServerKeyring(t *term.Console, calls KeyringCalls) *cobra.Command {
	cmd := &cobra.Command{Use: "keyring", Short: "the keys that decrypt the secrets of the cluster"}
	cmd.AddCommand(keyringLs(t, calls.List), keyringExport(t, calls.Exported), keyringImport(t))
	return cmd
}

// keyView is one key of a keyring. It has no secret.
type keyView struct {
	ID      keyring.ID `json:"id"`
	Active  bool       `json:"active"`
	Created string     `json:"created"`
}

// keyringView is the result of the commands server keyring ls and import.
type keyringView struct {
	File string    `json:"file"`
	Keys []keyView `json:"keys"`
}

func viewOf(path string, ring *keyring.Ring) keyringView {
	v := keyringView{File: path}
	for _, k := range ring.Keys() {
		created := k.Created()
		v.Keys = append(v.Keys, keyView{k.ID(), k.ID() == ring.Active(), term.Stamp(&created)})
	}
	return v
}

func showKeyring(t *term.Console, v keyringView, lines ...string) error {
	var names []string
	for _, k := range v.Keys {
		names = append(names, string(k.ID))
	}
	s, err := term.ResultOf(v, names, func(p *term.Page) {
		for _, line := range lines {
			p.Line("%s", line)
		}
		term.Rows(p, v.Keys, []term.Column[keyView]{
			{Head: "id", Cell: func(k keyView) string { return string(k.ID) }},
			{Head: "active", Cell: func(k keyView) string { return term.YesNo(k.Active) }},
			{Head: "created", Cell: func(k keyView) string { return k.Created }},
		})
	})
	if err != nil {
		return err
	}
	return t.Show(s)
}

func keyringLs(t *term.Console, list func(context.Context) error) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "ls", Aliases: []string{"list"}, Short: "list the keys, the active one first", Args: term.Exactly(),
		Example: "outspan server keyring ls\noutspan server keyring ls --data-dir /var/lib/outspan",
		Long: "Lists the names of the keys, and which servers have proved just now that they have every key that the state " +
			"needs. With --data-dir it\nlists the keys in the file of one server, which need not run. It shows no secret.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if dir == "" {
				return list(cmd.Context())
			}
			path, err := keyringPath(cmd, dir)
			if err != nil {
				return err
			}
			ring, err := keyring.Open(path)
			if err != nil {
				return err
			}
			return showKeyring(t, viewOf(path, ring))
		},
	}
	dataDirFlag(cmd, &dir)
	return cmd
}

func keyringExport(t *term.Console, exported func(context.Context, string, []string) error) *cobra.Command {
	var dir, from string
	cmd := &cobra.Command{
		Use: "export FILE", Short: "write all keys into a file that a passphrase protects", Args: term.Exactly("FILE"),
		Example: "outspan server keyring export --data-dir /var/lib/outspan --passphrase-file - monday.keys",
		Long: `Writes the keys of a server, which may run, into a new FILE with mode 0600. A snapshot of the state is of use only with these keys, so keep an export
for each snapshot, in another place. Whoever has a snapshot, the export and the passphrase has every secret of the cluster.
If the server runs, the cluster records that its keys were exported, and outspan status no longer asks for an export.

The passphrase is the first line of --passphrase-file, of 12 to 1024 bytes. With - it is read from standard input.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := keyringPath(cmd, dir)
			if err != nil {
				return err
			}
			ring, err := keyring.Open(path)
			if err != nil {
				return err
			}
			passphrase, err := readPassphrase(t, cmd, from)
			if err != nil {
				return err
			}
			var text strings.Builder
			if err := ring.Export(&text, passphrase); err != nil {
				return err
			}
			if err := writeNew(args[0], text.String()); err != nil {
				return err
			}
			var ids []string
			for _, id := range ring.IDs() {
				ids = append(ids, string(id))
			}
			if err := exported(cmd.Context(), dir, ids); err != nil {
				t.Note("warning: the export is good, but the cluster does not know of it: %s", model.Reason(err))
			}
			s, err := term.ResultOf(writtenFiles{Key: args[0]}, args, func(p *term.Page) {
				p.Line("wrote %s (keys: %d; without the passphrase nobody can read it)", args[0], len(ring.Keys()))
			})
			if err != nil {
				return err
			}
			return t.Show(s)
		},
	}
	dataDirFlag(cmd, &dir)
	passphraseFlag(cmd, &from)
	return cmd
}

func keyringImport(t *term.Console) *cobra.Command {
	var dir, from string
	cmd := &cobra.Command{
		Use: "import FILE", Short: "put the keys of an export into a server's data directory", Args: term.Exactly("FILE"),
		Example: "outspan server keyring import --data-dir /var/lib/outspan --passphrase-file - monday.keys",
		Long: `Makes the keyring of a server from an export, or adds the keys that it lacks. No key is removed. Run it as the user of the
server. A server that runs and lacks these keys uses them within about a minute.

The passphrase is the first line of --passphrase-file. With - it is read from standard input.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			path, err := keyringPath(cmd, dir)
			if err != nil {
				return err
			}
			f, err := os.Open(args[0])
			if err != nil {
				return term.Usage("can't read the export: %v", err).
					WithHint("exports are written by: outspan server keyring export FILE")
			}
			defer f.Close()
			passphrase, err := readPassphrase(t, cmd, from)
			if err != nil {
				return err
			}
			keys, err := keyring.Import(f, passphrase)
			if err != nil {
				return err
			}
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return fileError("make", dir, err)
			}
			before, ring := 0, (*keyring.Ring)(nil)
			err = transport.ManagedDir(dir).Lock(cmd.Context(), func() (err error) {
				before, ring, err = addKeys(path, keys)
				return err
			})
			if err != nil {
				return err
			}
			return showKeyring(t, viewOf(path, ring),
				fmt.Sprintf("%s has %d keys, %d of them new; a server that runs and lacks them uses them within a minute", path,
					len(ring.Keys()), len(ring.Keys())-before))
		},
	}
	dataDirFlag(cmd, &dir)
	passphraseFlag(cmd, &from)
	return cmd
}

// addKeys makes a keyring file, or adds keys to it. It returns how many keys the file had before.
func addKeys(path string, keys []keyring.Key) (before int, ring *keyring.Ring, err error) {
	ring, err = keyring.Open(path)
	if errors.Is(err, &model.Error{Code: model.CodeNotFound}) {
		ring, err = keyring.Create(path, keys...)
		return 0, ring, err
	}
	if err != nil {
		return 0, nil, err
	}
	before = len(ring.Keys())
	err = ring.Add(keys...)
	return before, ring, err
}

func dataDirFlag(cmd *cobra.Command, dir *string) {
	cmd.Flags().StringVar(dir, "data-dir", "", "data directory of the server")
}

func passphraseFlag(cmd *cobra.Command, from *string) {
	cmd.Flags().StringVar(from, "passphrase-file", "", "file with the passphrase, or - for standard input")
}

func keyringPath(cmd *cobra.Command, dir string) (string, error) {
	if dir == "" {
		return "", term.Usage("%s needs --data-dir", cmd.CommandPath()).
			WithHint("add --data-dir DIR, the data_dir of the server's configuration")
	}
	return filepath.Join(dir, keyring.FileName), nil
}

// readPassphrase returns the first line of a file or of standard input.
func readPassphrase(t *term.Console, cmd *cobra.Command, from string) (string, error) {
	in := t.In
	switch from {
	case "":
		return "", term.Usage("%s needs --passphrase-file", cmd.CommandPath()).
			WithHint("name a file with the passphrase, or give - and type it")
	case "-":
		t.Note("reading the passphrase from standard input")
	default:
		f, err := os.Open(from)
		if err != nil {
			return "", term.Usage("can't read the passphrase: %v", err)
		}
		defer f.Close()
		in = f
	}
	text, err := firstLine(in) // a line that it cuts off is longer than keyring.MaxPassphrase, and refused
	if err != nil {
		return "", fileError("read", from, err)
	}
	return strings.TrimSuffix(text, "\r"), nil
}

// writeNew writes a file with mode 0600 that must not exist yet, not even as a link. It touches no other file. Codes:
// file_exists, file_error.
func writeNew(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return model.Refuse(model.CodeFileExists, "%s exists already", path).WithHint("choose another file")
	}
	if err != nil {
		return fileError("make", path, err)
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = durable.SyncDir(filepath.Dir(path))
	}
	if err != nil {
		return fileError("write", path, errors.Join(err, os.Remove(path)))
	}
	return nil
}

func fileError(verb, path string, err error) *model.Error {
	return model.Refuse(model.CodeFile, "can't %s %s: %v", verb, path, err).WithHint("check the directory and its disk")
}
