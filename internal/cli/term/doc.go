// Package term prints the results of commands, and has the flags for output.
//
// A [Console] has the streams and the global flags of one command. A [Result] is printed as a table, JSON, YAML, names
// or with a template. A [Page] is text for people. [Progress] is for commands that follow a change. The package makes
// no calls to servers: packages cli and local pass values and texts to it.
package term
