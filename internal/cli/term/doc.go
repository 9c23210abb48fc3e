// Package term shows what a command of the command line has found, and reads how it is to be shown.
//
// A [Console] holds the streams and the global flags of one command. A [Result] is printed as a table, JSON, YAML,
// names or by a template; a [Page] is what people read. [Progress] is for what a command follows. The package knows
// neither the API nor a server: commands of package cli and of package local give it values and texts.
package term
