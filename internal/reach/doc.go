// Package reach sends a request to a server and returns the answer. It opens connections, explains why a connection
// can't be opened, and tries another server if one can't answer. It repeats only requests that are safe to repeat.
//
// The operations of the API are in package client. The agents' calls in package transport use the same retries.
package reach
