// Package journal is the agent's small memory on disk: keys with values, kept as an append-only file of checksummed
// records. It hides the file's format, torn writes and compaction. Callers see a map that survives a crash at any
// byte.
//
// A write is acknowledged when it is on disk. A crash in the middle of a write leaves the state before it. A file with
// any other damage is refused with CodeDamaged: see Open.
package journal
