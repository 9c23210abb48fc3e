package trust

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/keyring"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// repeatable is how long a write may be repeated although its key was pruned meanwhile. The state promises to remember
// requests for as long.
const repeatable = 10 * model.Minute

// keptKeys is the answer to questionKeptKeys: the keys of a server's file, and which of them it keeps.
type keptKeys struct {
	All  []keyring.ID          `cbor:"1,keyasint"`
	Kept map[keyring.ID]string `cbor:"2,keyasint"` // why it keeps the key
}

// dropKeys has a server remove keys. It keeps those that it needs after all.
type dropKeys struct {
	Keys []keyring.ID `cbor:"1,keyasint"`
}

// PruneKeyring removes keys of the keyring from the files of all servers that no server needs any more. Every
// server of the configuration is asked first, and keeps keys for its state, its snapshots and the latest requests;
// see keyringRotation.kept. Nothing is removed unless all answer. Saved snapshots don't count: for them, exports
// from before are to be kept. A dry run removes nothing. If a server fails later, its keys stay, and the next call
// removes them. It blocks for at most about 10 s. Codes: those of Keyring; busy while the keyring is rotated or
// pruned; conflict if a server does not answer.
func (e *Engine) PruneKeyring(ctx context.Context, dryRun bool) (api.KeyringPruning, error) {
	return e.rotation.prune(ctx, dryRun)
}

func (r *keyringRotation) prune(ctx context.Context, dryRun bool) (api.KeyringPruning, error) {
	k, reply := r.keyring, api.KeyringPruning{DryRun: dryRun, Removed: []string{}, Kept: []api.KeyringKept{}}
	if _, err := k.leading(); err != nil {
		return reply, err
	}
	if !r.running.TryLock() {
		return reply, rotating()
	}
	defer r.running.Unlock()
	others := k.servers.Others()
	answers, err := r.askKept(ctx, others)
	if err != nil {
		return reply, err
	}
	drop := map[keyring.ID]bool{}
	for _, one := range answers {
		for _, id := range one.All {
			drop[id] = true
		}
	}
	for i, one := range answers {
		name := k.name
		if i > 0 {
			name = others[i-1].Name
		}
		for _, id := range slices.Sorted(maps.Keys(one.Kept)) {
			delete(drop, id)
			reply.Kept = append(reply.Kept, api.KeyringKept{Key: string(id), Server: name, Reason: one.Kept[id]})
		}
	}
	ids := slices.Sorted(maps.Keys(drop))
	reply.Removed = texts(ids)
	if dryRun || len(ids) == 0 {
		return reply, nil
	}
	err = r.dropAll(ctx, others, ids)
	k.log.Info("keys of the keyring are removed, because nothing needs them any more", "keys", ids, "error", err)
	return reply, err
}

// askKept asks each server which keys it has and keeps, this server first. Codes: conflict if one does not answer;
// those of kept.
func (r *keyringRotation) askKept(ctx context.Context, others []transport.ServerInfo) ([]keptKeys, error) {
	own, err := r.kept()
	if err != nil {
		return nil, err
	}
	answers := append([]keptKeys{own}, make([]keptKeys, len(others))...)
	return answers, r.askAll(ctx, others, func(ctx context.Context, i int, server transport.ServerInfo) error {
		return ask(ctx, r.keyring.peers, server, questionKeptKeys, struct{}{}, &answers[i+1])
	})
}

// dropAll has each server remove keys, this server last: if it fails before, its keys are there to try again.
func (r *keyringRotation) dropAll(ctx context.Context, others []transport.ServerInfo, ids []keyring.ID) error {
	err := r.askAll(ctx, others, func(ctx context.Context, _ int, server transport.ServerInfo) error {
		return ask(ctx, r.keyring.peers, server, questionDropKeys, dropKeys{ids}, &struct{}{})
	})
	if err != nil {
		return err
	}
	return r.drop(ctx, ids)
}

// askAll calls do for all servers at the same time, with a limit. Code: conflict if one fails.
func (r *keyringRotation) askAll(ctx context.Context, others []transport.ServerInfo,
	do func(context.Context, int, transport.ServerInfo) error) error {
	ctx, cancel := context.WithTimeout(ctx, keyTime)
	defer cancel()
	failures := make([]error, len(others))
	var wg sync.WaitGroup
	for i, server := range others {
		wg.Go(func() {
			if err := do(ctx, i, server); err != nil {
				failures[i] = fmt.Errorf("%s: %s", server.Name, model.Reason(err))
			}
		})
	}
	wg.Wait()
	if err := errors.Join(failures...); err != nil {
		return model.Refuse(model.CodeConflict, "every server must agree, and these don't: %s",
			strings.ReplaceAll(err.Error(), "\n", "; ")).
			WithHint("bring them back, or remove those that are gone for good: outspan server remove; then try again")
	}
	return nil
}

// giveKept answers questionKeptKeys. Codes: forbidden, member_revoked, busy; those of kept.
func (r *keyringRotation) giveKept(ctx context.Context) (keptKeys, error) {
	if _, err := askingServer(ctx, r.keyring.store); err != nil {
		return keptKeys{}, err
	}
	if !r.running.TryLock() {
		return keptKeys{}, rotating()
	}
	defer r.running.Unlock()
	return r.kept()
}

// dropFor answers a dropKeys. Codes: forbidden, member_revoked, busy; those of drop.
func (r *keyringRotation) dropFor(ctx context.Context, q dropKeys) error {
	who, err := askingServer(ctx, r.keyring.store)
	if err != nil {
		return err
	}
	if !r.running.TryLock() {
		return rotating()
	}
	defer r.running.Unlock()
	r.keyring.log.Info("a server has keys of the keyring removed", "keys", q.Keys, "server", who.Name)
	return r.drop(ctx, q.Keys)
}

// drop removes those of the keys from this server's file that it does not keep. It is repeatable. r.running must be
// held. Codes: those of kept, serverKeyring.edit and keyring.Ring.Remove.
func (r *keyringRotation) drop(ctx context.Context, ids []keyring.ID) error {
	return r.keyring.edit(ctx, func(ring *keyring.Ring) error {
		now, err := r.kept()
		if err != nil {
			return err
		}
		for _, id := range ids {
			if _, kept := now.Kept[id]; kept || !slices.Contains(now.All, id) {
				continue
			}
			if err := ring.Remove(id); err != nil {
				return err
			}
		}
		return nil
	})
}

// kept returns which keys this server has, and which it keeps:
//   - those that its state needs, the active one of the file, and that of a rotation that has not succeeded yet;
//   - all, if a snapshot on its disk is from before the last rotation, or if it has no snapshot: it could come back to
//     such a state. Entries of the log before its oldest snapshot don't count, because it never begins with them;
//   - those that hash the bodies of requests that may still be repeated.
//
// r.running must be held. Code: not_found if the keyring is missing.
func (r *keyringRotation) kept() (keptKeys, error) {
	k, state := r.keyring, r.keyring.store.Current()
	ring, err := k.get()
	if err != nil {
		return keptKeys{}, err
	}
	keep := keptKeys{All: ring.IDs(), Kept: map[keyring.ID]string{}}
	if row, ok := state.ActiveKey(model.KeyData); !ok {
		keep.because(keep.All, "the state has no keys yet")
	} else if oldest, ok := k.servers.OldestSnapshot(); !ok {
		keep.because(keep.All, "the server has no snapshot yet")
	} else if oldest < row.CreatedIndex {
		keep.because(keep.All, fmt.Sprintf("a snapshot of the server is from entry %d, before the last rotation at %d",
			oldest, row.CreatedIndex))
	}
	keep.because(hashing(state, max(state.Now, k.servers.Now())),
		"requests of the last "+repeatable.String()+" may be repeated")
	keep.because([]keyring.ID{r.next}, "a rotation that failed uses it when it is repeated")
	keep.because([]keyring.ID{ring.Active()}, "it is the active key")
	keep.because(needed(state), "the state needs it")
	return keep, nil
}

// because notes why keys are kept. The last reason counts.
func (k *keptKeys) because(ids []keyring.ID, why string) {
	for _, id := range ids {
		if id != "" {
			k.Kept[id] = why
		}
	}
}

// hashing returns the keys that hashed the bodies of requests that may still be repeated.
func hashing(state *fsm.State, now model.Time) (ids []keyring.ID) {
	for _, one := range state.Requests.All() {
		id, _, keyed := strings.Cut(one.Body, ".")
		if keyed && one.At.Add(repeatable) > now && !slices.Contains(ids, keyring.ID(id)) {
			ids = append(ids, keyring.ID(id))
		}
	}
	return ids
}

func rotating() *model.Error {
	return model.Refuse(model.CodeBusy, "the keyring is being rotated or pruned").
		WithHint("look at the outcome with: outspan server keyring ls")
}
