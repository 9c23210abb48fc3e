// Package journal is the agent's small memory on disk: keys with values, kept as an append-only file of
// checksummed records. It hides the file's format, torn writes and compaction; its user sees a map that survives
// a crash at any byte.
//
// A write is acknowledged when it is on disk. A crash in the middle of a write leaves the state before it. A file
// that was damaged otherwise is refused by name, never read as something else: see Open.
package journal
