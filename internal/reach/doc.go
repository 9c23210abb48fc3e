// Package reach gets a request to a server and its answer back: it opens connections, says in words what keeps one from
// opening, asks another server when one is no help, and repeats what is safe to repeat.
//
// It knows no operation and no type of the API: package client has those, and the agents' calls of package transport go
// through the same retries.
package reach
