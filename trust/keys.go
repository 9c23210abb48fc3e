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
	data, err := unwrap(ring, under)
	if err != nil {
		return nil, err
	}
	return data.Open(string(row.Name), row.Version, row.Sealed)
}

func unwrap(ring *keyring.Ring, row *fsm.TrustKey) (keyring.DEK, error) {
	return ring.Unwrap(keyring.Wrapped{KEK: keyring.ID(row.Under), Bytes: row.Sealed})
}

// sealed returns put with the key plain, encrypted under the active data key. Codes: integrity_check_failed if there is
// none; not_found if the keyring lacks a key.
func sealed(ring *keyring.Ring, state *fsm.State, plain []byte, put fsm.KeyPut) (*fsm.KeyPut, error) {
	under, ok := state.ActiveKey(model.KeyData)
	if !ok {
		return nil, model.Refuse(model.CodeIntegrity, "the state has no active data key").
			WithHint("restore a snapshot that has one")
	}
	data, err := unwrap(ring, under)
	if err != nil {
		return nil, err
	}
	put.Under = string(under.Name)
	put.Sealed, err = data.Seal(string(put.Name), put.Version, plain)
	return &put, err
}

// resealed returns the command that puts a key into another phase. A row has another version then, so the key is
// encrypted again. Codes: those of openKey and sealed.
func resealed(ring *keyring.Ring, state *fsm.State, row *fsm.TrustKey, phase model.KeyPhase) (*fsm.KeyPut, error) {
	plain, err := openKey(ring, state, row)
	if err != nil {
		return nil, err
	}
	put := rowOf(row)
	put.Phase = phase
	return sealed(ring, state, plain, put)
}

// rowOf returns the command that writes a row again, as its next version. It lacks the encrypted key.
func rowOf(row *fsm.TrustKey) fsm.KeyPut {
	return fsm.KeyPut{Name: row.Name, Version: row.Version + 1, Phase: row.Phase, Public: row.Public,
		Passed: row.Passed, Grace: row.Grace}
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
		return nil, noCAYet()
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
