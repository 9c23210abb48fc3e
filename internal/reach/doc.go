// Package reach gets a request to a server and returns its answer. It opens connections, explains why one can't be
// opened, tries another server when one can't help, and repeats what is safe to repeat.
//
// It knows no operations of the API. Package client has those, and the agents' calls of package transport use the same
// retries.
package reach
