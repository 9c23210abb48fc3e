// Package httpapi is the HTTP API of a server: typed JSON operations with their OpenAPI document, the agents' protocol,
// streams of events and logs, and the questions that servers ask each other.
//
// A request is forwarded to the leader at most once, with the original actor, so a client may call any server. The
// package checks who may call what, makes reads wait for changes, and answers a repeated write with the outcome of the
// first. It decides nothing about the cluster: a write becomes a log entry, and the state accepts or refuses it.
//
// It uses the other parts of the server through the small interfaces in deps.go. internal/daemon connects them.
package httpapi
