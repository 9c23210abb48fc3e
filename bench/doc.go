// Command bench measures a cluster: three server processes of the real program, with TLS and their raft logs on disk.
// Hundreds or thousands of simulated agents speak the real protocol to the servers.
//
// The result is one table and, on request, the same figures as JSON. Many values have a goal. Some also have a limit,
// which is usually what the same machine did in the same run without outspan. Examples of limits are bare raft on
// files, an HTTPS handler that does nothing, and a loop that only decodes and applies entries. Absolute times on a
// shared machine mean little. The ratio of a value to its limit means more.
//
// cases.go lists all cases.
package main
