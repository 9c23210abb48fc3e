package trust

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"reflect"
	"slices"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// Gossip is a member of the gossip pool. cluster.Pool implements it.
type Gossip interface {
	// SetKeys replaces the keys: the first encrypts, all decrypt.
	SetKeys(keys [][]byte) error
	// Keys returns the keys in use, the one that encrypts first.
	Keys() [][]byte
}

// keeper makes a server or an agent use the CAs and the gossip keys of the cluster, and keeps them in its files. It is
// a value without state of its own.
type keeper struct {
	dir    transport.Managed
	creds  *transport.Credentials
	reload func() error // makes creds read the files again
	gossip Gossip       // nil if the process does not gossip
}

// keys is what the cluster trusts at one moment.
type keys struct {
	at            uint64 // the number of the state
	roots, gossip [][]byte
}

// adopt writes the keys to the files, unless these come from a newer state, and makes the process use what is in the
// files. edit changes the notes in the same step. If a file can't be written, the process uses the keys from memory,
// and adopt returns the error; the caller repeats the call. It blocks as transport.Managed.Lock does. Codes:
// file_error; certificate_invalid for damaged keys, or if the certificate in use or the one in the files is not good
// under the roots.
func (k keeper) adopt(ctx context.Context, next keys, edit func(*notes)) error {
	if err := k.check(next); err != nil {
		return err
	}
	older := false
	err := k.dir.Lock(ctx, func() error {
		known, err := readNotes(k.dir)
		if err != nil { // they come with the news again
			known = notes{}
		}
		if older = next.at < knownAt(known, k.creds.Leaf()); older {
			return nil
		}
		return k.write(next, known, edit)
	})
	switch {
	case err == nil:
		return k.useFiles()
	case older:
		return err
	}
	return errors.Join(err, k.useMemory(next))
}

// check refuses keys with which this process could not start again.
func (k keeper) check(next keys) error {
	refuse := func(what string) error {
		return model.Refuse(model.CodeCertificateInvalid, "the news of the cluster have %s", what).
			WithHint("compare the versions of the servers and of this process with: outspan version")
	}
	roots, err := parseRoots(next.roots)
	if err != nil || slices.ContainsFunc(roots, func(root *x509.Certificate) bool { return !root.IsCA }) {
		return refuse("a damaged root")
	}
	for _, key := range next.gossip {
		if _, err := transport.ParseGossipKey(transport.GossipKey(key).Encode()); err != nil {
			return refuse("a damaged gossip key")
		}
	}
	if len(next.gossip) == 0 {
		return refuse("no gossip key")
	}
	if err := goodUnder(k.creds.Leaf(), roots); err != nil {
		return refuse("no root for the certificate of this process")
	}
	// A new certificate may not be in the files yet. A damaged one is of no use to the next start anyway.
	inFile, found, err := k.dir.Pair(k.creds.Identity().Role)
	if err == nil && found && goodUnder(inFile.Leaf, roots) != nil {
		return refuse("no root for the certificate in the files of this process")
	}
	return nil
}

// write replaces the files that differ. The lock on the directory is held.
func (k keeper) write(next keys, known notes, edit func(*notes)) error {
	var files transport.ManagedFiles
	roots, gossip := k.inFiles()
	if !slices.EqualFunc(roots, next.roots, bytes.Equal) { // the order counts too; see roots
		files.Roots = next.roots
	}
	if !bytes.Equal(pki.GossipDigest(gossip), pki.GossipDigest(next.gossip)) {
		files.GossipKeys = next.gossip
	}
	noted := notes{At: known.At, Servers: slices.Clone(known.Servers), Revoked: slices.Clone(known.Revoked)}
	edit(&noted)
	if files.Roots == nil && files.GossipKeys == nil && reflect.DeepEqual(noted, known) {
		return nil
	}
	noted.At = next.at
	var err error
	if files.News, err = json.Marshal(noted); err != nil {
		return err
	}
	return k.dir.Write(files)
}

// inFiles returns the roots and the gossip keys in the files. Those of a damaged or missing file are empty.
func (k keeper) inFiles() (roots, gossip [][]byte) {
	certs, err := k.dir.Roots()
	for i := 0; err == nil && i < len(certs); i++ {
		roots = append(roots, certs[i].Raw)
	}
	loaded, _ := k.dir.GossipKeys() // of a damaged file it returns none
	for _, key := range loaded {
		gossip = append(gossip, key)
	}
	return roots, gossip
}

// useFiles makes the process use the keys in the files, unless it does so already.
func (k keeper) useFiles() error {
	roots, gossip := k.inFiles()
	var err error
	if !k.trusts(roots) {
		err = k.reload()
	}
	if !k.hears(gossip) {
		err = errors.Join(err, k.gossip.SetKeys(gossip))
	}
	return err
}

// useMemory makes the process use keys that are not in the files.
func (k keeper) useMemory(next keys) error {
	var err error
	if !k.trusts(next.roots) {
		err = k.creds.UseRoots(next.roots)
	}
	if !k.hears(next.gossip) {
		err = errors.Join(err, k.gossip.SetKeys(next.gossip))
	}
	return err
}

// trusts reports whether these are the roots in use.
func (k keeper) trusts(roots [][]byte) bool {
	return bytes.Equal(pki.RootsDigest(k.creds.Roots()), pki.RootsDigest(roots))
}

// hears reports whether these are the gossip keys in use, or the process does not gossip.
func (k keeper) hears(gossip [][]byte) bool {
	return k.gossip == nil || bytes.Equal(pki.GossipDigest(k.gossip.Keys()), pki.GossipDigest(gossip))
}

// uses returns the digests of the keys that the process uses. ok is false while the files have other keys, so that
// after a restart the process would not use these.
func (k keeper) uses() (rootsDigest, gossipDigest []byte, ok bool) {
	roots, gossip := k.inFiles()
	if !k.trusts(roots) || !k.hears(gossip) {
		return nil, nil, false
	}
	if k.gossip != nil {
		gossipDigest = pki.GossipDigest(gossip)
	}
	return pki.RootsDigest(roots), gossipDigest, true
}
