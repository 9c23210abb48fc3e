// Package hclfile reads and writes HCL files according to tables of keys, for packages config and jobfile.
//
// A list of fields describes one body of a file. A [Field] has the name of its key, describes the values, and refers to
// the Go variable that holds the value. The same list decodes a body, prints it, and lists its keys for the reference.
// All mistakes are collected, each with file, line and column.
package hclfile
