package trust

import (
	"crypto/x509"
	"encoding/json"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// notes is the content of news.json in a managed directory: what the processes of a machine must remember of the news
// of the cluster. The zero value is that of a missing file.
type notes struct {
	// At is the number of the state (fsm.State.MomentNumber) from which the roots, the gossip keys and the rest come. No
	// older state changes the files.
	At      uint64              `json:"at"`
	Servers []string            `json:"servers,omitempty"` // host:port of the servers' API
	Revoked []transport.Revoked `json:"revoked,omitempty"`
}

// readNotes returns the notes of a directory. Codes: file_error; invalid if the file is damaged.
func readNotes(dir transport.Managed) (n notes, err error) {
	text, err := dir.News()
	if err != nil || len(text) == 0 {
		return notes{}, err
	}
	if err := json.Unmarshal(text, &n); err != nil {
		return notes{}, model.Refuse(model.CodeInvalid, "the file news.json in %s is damaged: %v", dir.Path(), err).
			WithHint("it is written again with the next news of the servers")
	}
	return n, nil
}

// knownAt returns the number of the newest state from which this process knows what the cluster trusts. Its certificate
// came with the roots and the gossip keys of its state.
func knownAt(n notes, leaf *x509.Certificate) uint64 { return max(n.At, pki.AdmittedAt(leaf)) }

// voids has the number below which the certificates of a member are void.
type voids map[model.Subject]uint64

func newVoids(revoked []transport.Revoked) voids {
	v := voids{}
	for _, one := range revoked[:min(len(revoked), transport.MaxRevoked)] {
		v[model.Subject{Kind: one.Kind, Name: one.Name}] = one.VoidBefore
	}
	return v
}

// check refuses the certificate of a member that was revoked since. Code: member_revoked.
func (v voids) check(id pki.Identity, leaf *x509.Certificate) error {
	if who, ok := memberOf(id); ok && pki.AdmittedAt(leaf) < v[who] {
		return revoked(who)
	}
	return nil
}
