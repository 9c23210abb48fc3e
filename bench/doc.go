// Command bench measures a cluster: servers of the real program, three processes with TLS and their logs on disk, and
// thousands of simulated agents that speak the real protocol. It prints one table and, if told to, writes JSON. Beside
// what was measured stands what it was meant to be, and what the same machine did in the same run with nothing of
// outspan around it: bare raft on bare files, an HTTPS handler that does nothing, a loop that decodes and applies.
// Times on a machine that others use say little; such ratios say more.
//
// Each file named after a case measures it; cases.go has the table of them.
package main
