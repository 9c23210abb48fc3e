// Command bench measures a cluster. Its servers run the real program, in three processes with TLS and their logs on
// disk. Thousands of simulated agents speak the real protocol to them. It prints one table and, on request, writes
// JSON. Each measured value stands next to its goal. It also stands next to what the same machine did in the same run
// without outspan: bare raft on bare files, an HTTPS handler that does nothing, or a loop that decodes and applies.
// Absolute times on a shared machine mean little; these ratios mean more.
//
// Each case is measured in the file named after it; cases.go lists all cases.
package main
