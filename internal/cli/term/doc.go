// Package term prints the results of the command line, and has its flags for output.
//
// A [Console] has the streams and the global flags of one command. A [Result] is printed as a table, JSON, YAML, names
// or with a template; a [Page] is what people read. [Progress] is for commands that follow something. The package knows
// neither the API nor a server: commands of package cli and of package local give it values and texts.
package term
