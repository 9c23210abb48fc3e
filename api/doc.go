// Package api defines the JSON of the HTTP API. Views show objects and are named after them. Replies answer writes,
// bodies are what a caller sends, and Problem is an error. The only code here converts values, and maps error codes to
// HTTP statuses and exit codes. The package imports only the standard library and model, so that clients need no code
// of a server.
//
// docs/openapi.json is generated from these types. Fields may be added, but none is renamed or removed.
package api
