package trust

import (
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// openKey decrypts the row of a CA or gossip key. Codes: not_found if the keyring lacks a key; integrity_check_failed.
func openKey(ring *keyring.Ring, state *fsm.State, row *fsm.TrustKey) ([]byte, error) {
	under, ok := state.TrustKeys.Get(model.KeyName(row.Under))
	if !ok {
		return nil, model.Refuse(model.CodeIntegrity, "the state has no key %s, which encrypts %s", row.Under, row.Name).
			WithHint("restore a snapshot that has it")
	}
	data, err := ring.Unwrap(keyring.Wrapped{KEK: keyring.ID(under.Under), Bytes: under.Sealed})
	if err != nil {
		return nil, err
	}
	return data.Open(string(row.Name), row.Version, row.Sealed)
}

// seal encrypts a key under the active data key, into a row that has its name and its version. Codes: conflict without
// a data key; those of the keyring.
func seal(ring *keyring.Ring, state *fsm.State, into *fsm.KeyPut, plain []byte) error {
	row, ok := state.ActiveKey(model.KeyData)
	if !ok {
		return model.Refuse(model.CodeConflict, "the state has no active data key").WithHint("restore a snapshot that has it")
	}
	data, err := ring.Unwrap(keyring.Wrapped{KEK: keyring.ID(row.Under), Bytes: row.Sealed})
	if err != nil {
		return err
	}
	into.Under = string(row.Name)
	into.Sealed, err = data.Seal(string(into.Name), into.Version, plain)
	return err
}

// activeCA returns the name of the CA that signs now, or "" if there is none.
func activeCA(state *fsm.State) model.KeyName {
	if row, ok := state.ActiveKey(model.KeyCA); ok {
		return row.Name
	}
	return ""
}

// authority returns the CA that signs now. Codes: busy if there is no CA yet; certificate_invalid; those of openKey.
func authority(ring *keyring.Ring, state *fsm.State) (*transport.Authority, error) {
	row, ok := state.ActiveKey(model.KeyCA)
	if !ok {
		return nil, model.Refuse(model.CodeBusy, "the cluster has no CA yet").
			WithHint("try again in a moment; if it stays so, the log of the leading server says why")
	}
	key, err := openKey(ring, state, row)
	if err != nil {
		return nil, err
	}
	return transport.LoadAuthority(row.Public, key)
}

// roots returns the certificates of all CAs, as DER. A retired CA still counts until its row is dropped. The active CA
// is the last one, so an agent knows from its file whether its certificate is of an older one.
func roots(state *fsm.State) [][]byte {
	var all, active [][]byte
	for _, row := range state.KeysOf(model.KeyCA) {
		if row.Phase == model.KeyActive {
			active = append(active, row.Public)
			continue
		}
		all = append(all, row.Public)
	}
	return append(all, active...)
}

// gossipKeys returns all keys of the gossip pool, the active one first. Codes: those of openKey.
func gossipKeys(ring *keyring.Ring, state *fsm.State) ([][]byte, error) {
	var all [][]byte
	for _, row := range state.KeysOf(model.KeyGossip) {
		key, err := openKey(ring, state, row)
		switch {
		case err != nil:
			return nil, err
		case row.Phase == model.KeyActive:
			all = append([][]byte{key}, all...)
		default:
			all = append(all, key)
		}
	}
	return all, nil
}
