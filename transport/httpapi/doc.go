// Package httpapi is the HTTP API of a server: typed JSON operations with their OpenAPI document, the agents' protocol,
// streams of events and logs, and the questions that servers ask each other.
//
// It hides who may do what, and which server answers. A request is forwarded to the leader at most once, with the actor
// preserved. It hides how a read waits for a change, how a write is answered again after a lost reply, and the shape of
// every answer. It decides nothing about the cluster: a write is a log entry, and the state accepts or refuses it.
//
// It uses the rest of the server through the small interfaces in deps.go; internal/daemon connects them.
package httpapi
