// Package transport carries bytes between the processes of a cluster.
//
// It hides how a process proves its role (TLS 1.3 and certificates), and how one TCP port serves both raft and the API
// (ALPN). It hides how the unix socket finds out who calls (peer credentials), and how many connections of each kind
// may be open. It does not decide what a caller may do: handlers get the caller from SubjectFrom and decide.
//
// Everything works over any net.Listener and any dial function. So a test can run a whole cluster over net.Pipe inside
// a testing/synctest bubble.
package transport
