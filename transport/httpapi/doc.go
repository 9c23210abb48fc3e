// Package httpapi is the HTTP API of a server: typed JSON operations with their OpenAPI document, the agents' protocol,
// streams of events and logs, and what servers ask each other.
//
// It hides: who may do what, which server answers (a request is forwarded to the leader at most once, with the actor
// preserved), how a read waits for a change, how a write is answered again after a lost reply, and the shape of every
// answer. It decides nothing about the cluster: a write is a log entry, and the state refuses it or not.
//
// The rest of the server is seen through the small interfaces in deps.go; cmd wires them.
package httpapi
