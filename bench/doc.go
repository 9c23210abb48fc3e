// Command bench measures a cluster: three server processes of the real program, with TLS and their raft logs on disk.
// Hundreds or thousands of simulated agents speak the real protocol to the servers.
//
// The result is one table and, on request, the same as JSON. Many values stand next to a goal. Some also stand next to
// a limit: what the same machine did in the same run without outspan, such as bare raft on files, an HTTPS handler that
// does nothing, or a loop that only decodes and applies entries. Absolute times on a shared machine mean little; the
// ratio of a value to its limit means more.
//
// cases.go lists all cases.
package main
