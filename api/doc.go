// Package api has the JSON of the HTTP API: what a server shows (views, named after what they show), what an answer to
// a write adds (Reply), what a caller sends (Body), and how an error stands in an answer (Problem). It holds no code
// but that of their texts and the table of codes, statuses and exit codes. It imports the standard library and model
// alone, so that clients need nothing of a server.
//
// docs/openapi.json is made from these types. A field may be added; none is renamed or removed.
package api
