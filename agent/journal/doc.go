// Package journal stores keys with values in an append-only file of checksummed records, for the agent. It hides the
// file's format, torn writes and compaction. Callers see a map that survives a crash at any byte.
//
// By default a write is acknowledged when it is on disk. A crash in the middle of a write leaves the state before it.
// Open refuses a file with any other damage, with CodeDamaged.
package journal
