// Package frame has the format of the page's stream, which GET /v1/page/stream answers: a sequence of frames that carry
// the nodes, groups and instances of the cluster in columns. docs/page-stream.md describes every byte. A Builder writes
// frames, and a Reader turns them into a Picture.
//
// The stream carries the newest value of a row, not its history. So a frame may be left out only together with the rest
// of the stream: after a break, the reader opens a new stream, which begins with a whole snapshot.
package frame
