// Package hclfile reads and prints HCL files by lists of fields, for packages config and jobfile.
//
// A list of fields describes one body of a file. A [Field] has the name of its key, describes the values, and refers to
// the Go variable that holds the value. The same list decodes a body, prints it, and lists its keys for the reference
// documentation. A [Decoder] collects all mistakes, each with file, line and column.
package hclfile
