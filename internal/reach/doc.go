// Package reach sends requests to servers and returns their answers. It opens connections, explains why a connection
// can't be opened, and tries the next server if a server can't answer. It repeats only requests that are safe to
// repeat.
//
// The operations of the API are in package client. The agents' calls in package transport use the same retries.
package reach
