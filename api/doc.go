// Package api has the JSON of the HTTP API: what a server shows (views, named after what they show), what an answer to
// a write adds (Reply), what a caller sends (Body), and the form of an error (Problem). Its only code converts values
// to text and keeps the table of codes, statuses and exit codes. It imports only the standard library and model, so
// that clients need nothing of a server.
//
// docs/openapi.json is generated from these types. A field may be added; none is renamed or removed.
package api
