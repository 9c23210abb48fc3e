// Package fleet publishes the nodes, groups and instances of a server's state to the readers of the page's stream, in
// the format of api/frame.
//
// A Publisher does nothing while nobody reads. With the first reader it copies what the stream shows into a table of
// columns, and lets the Machine collect which rows entries touch. Four times a second it looks at the touched rows, and
// writes those that changed into the table. DESIGN.md says how readers get them.
package fleet
