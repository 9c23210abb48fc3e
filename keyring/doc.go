// Package keyring has the keys that encrypt secret rows of the replicated state. There are two levels:
//
//   - A key-encryption key (KEK, the type Key) is in a file of every server, DATA_DIR/keyring, and never in the state.
//     The file may have several: one is active, the others are kept because something may still need them.
//   - A data key (the type DEK) encrypts rows. The state has it wrapped, which means encrypted by a KEK. So a new KEK
//     changes only the few rows with wrapped data keys.
//
// Apply can't encrypt, because it must not draw random numbers. The leader seals a row before it proposes the entry, so
// Apply sees only bytes.
//
// A server that lacks a KEK can't read the state. So a cluster changes its KEK in this order: Generate on the leader,
// Add on every other server, Prove and Check with each of them, Rewrap the data keys of the state, and then Activate on
// each server. A KEK may be removed once no row, no snapshot and no entry of a log on any server needs it; the caller
// must check that.
//
// Nothing here protects a stolen disk of a server, because the keyring is on that disk. It protects snapshots and
// backups, which don't contain the keyring.
//
// Types with a secret have String, GoString and LogValue, which hide it. They keep the secret inside a function. So
// package fmt does not print it either if the value is in an unexported field of another type.
package keyring
