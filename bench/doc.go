// Command bench measures a cluster: servers of the real program, three processes with TLS and their logs on disk, and
// thousands of simulated agents that speak the real protocol. It prints one table and, on request, writes JSON. Each
// measured value stands next to its goal, and next to what the same machine did in the same run without outspan: bare
// raft on bare files, an HTTPS handler that does nothing, a loop that decodes and applies. Absolute times on a shared
// machine mean little; these ratios mean more.
//
// The file named after a case measures it; cases.go has the table of all cases.
package main
