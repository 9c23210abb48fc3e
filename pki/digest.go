package pki

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"
)

// RootsDigest identifies a set of CA certificates (DER). The order of the certificates does not matter.
func RootsDigest(roots [][]byte) []byte {
	sorted := slices.Clone(roots)
	slices.SortFunc(sorted, bytes.Compare)
	return digest("outspan roots", sorted)
}

// GossipDigest identifies a list of gossip keys: the key that encrypts, which comes first, and the set of the others.
// The keys are random, so the digest does not reveal them.
func GossipDigest(keys [][]byte) []byte {
	sorted := slices.Clone(keys)
	slices.SortFunc(sorted[min(len(sorted), 1):], bytes.Compare)
	return digest("gossip keys of outspan", sorted)
}

func digest(domain string, parts [][]byte) []byte {
	h := sha256.New()
	h.Write([]byte(domain))
	for _, part := range parts {
		h.Write(binary.BigEndian.AppendUint32(nil, uint32(len(part))))
		h.Write(part)
	}
	return h.Sum(nil)
}
