package local

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/cli/term"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// recoveredTrust says what a recovery makes of tokens and members, and which keys the server lacks.
type recoveredTrust struct {
	Tokens  int      `json:"tokens_revoked"`
	Agents  int      `json:"agents"`                  // that return with the newest certificate that they have
	Missing []string `json:"missing_keys,omitempty"`  // of the keyring; that the state needs
	Keyring string   `json:"keyring_error,omitempty"` // why the keyring can't be read
}

// trustAfter returns nil if the cluster does not make its certificates itself.
func trustAfter(s *fsm.State, dataDir string) *recoveredTrust {
	if !s.Managed() {
		return nil
	}
	r := &recoveredTrust{}
	for _, t := range s.JoinTokens.All() {
		if t.RevokedIndex == 0 {
			r.Tokens++
		}
	}
	for _, m := range s.TrustMembers.All() {
		if m.Subject.Kind == model.SubjectAgent && m.RevokedIndex == 0 {
			r.Agents++
		}
	}
	var has []keyring.ID
	ring, err := keyring.Open(filepath.Join(dataDir, keyring.FileName))
	if err != nil {
		r.Keyring = model.Reason(err)
	} else {
		has = ring.IDs()
	}
	for _, row := range s.KeysOf(model.KeyData) {
		if !slices.Contains(has, keyring.ID(row.Under)) && !slices.Contains(r.Missing, row.Under) {
			r.Missing = append(r.Missing, row.Under)
		}
	}
	return r
}

// sameCA refuses a state that lacks a CA of the directory tls. The server would go on with its files, give others
// certificates of the CA of the state, and so lose them one by one. Codes: conflict, certificate_invalid.
func sameCA(s *fsm.State, dataDir string) error {
	if !s.Managed() {
		return nil
	}
	managed := transport.ManagedDir(dataDir)
	roots, err := managed.Roots()
	if err != nil {
		return err
	}
	for _, root := range roots {
		known := func(row *fsm.TrustKey) bool { return bytes.Equal(row.Public, root.Raw) }
		if !slices.ContainsFunc(s.KeysOf(model.KeyCA), known) {
			return model.Refuse(model.CodeConflict, "%s has a CA that the snapshot lacks (valid since %s): the cluster's CA "+
				"was replaced between the two", managed.RootsFile(), pki.Stamp(root.NotBefore)).
				WithHint("recover from a snapshot that was saved after that. To go on with the CA of this snapshot, remove %s: "+
					"the server makes new files, and each machine that trusts only the other CA must join again. Not if the "+
					"CA of the snapshot was stolen", managed.Path())
		}
	}
	return nil
}

func (r *recoveredTrust) show(p *term.Page, dataDir string) {
	if r == nil {
		return
	}
	p.Line("  join tokens: %d are revoked when it starts; make new ones with: outspan token create", r.Tokens)
	p.Line("  members: %d agents return with the newest certificate that they have; agents that joined later than this "+
		"state join again: outspan join", r.Agents)
	p.Line("  members that were revoked later than this state are good again: outspan node revoke NODE, outspan server " +
		"revoke SERVER")
	if r.Keyring != "" {
		p.Line("  %s", r.Keyring)
	}
	if len(r.Missing) > 0 {
		p.Line("  the server needs the keys %s: outspan server keyring import --data-dir %s "+
			"--passphrase-file - FILE", strings.Join(r.Missing, ", "), dataDir)
	}
}
