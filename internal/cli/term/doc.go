// Package term prints the results of commands, and has the flags for output.
//
// A [Console] has the streams and the global flags of one command. A [Result] is printed as a table, JSON, YAML, names
// or with a template. A [Page] is text for people. [Progress] is for commands that follow a change. The package uses
// neither the API nor a server: it gets values and texts from packages cli and local.
package term
