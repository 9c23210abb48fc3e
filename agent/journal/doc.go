// Package journal stores keys with values in an append-only file of checksummed records, for the agent. It hides the
// file's format, torn writes and compaction. Callers see a map that survives a crash at any byte.
//
// By default a write returns once it is on disk. After a crash in the middle of a write, the map is as before the
// write. If the file is damaged in any other way, Open returns CodeDamaged.
package journal
