// Package hclfile reads and writes files in HCL by tables of keys, for packages config and jobfile.
//
// A body of a file is a list of fields. A [Field] has the name of its key, describes its values, and refers to the
// place of its value. The same list decodes a body, prints one and lists the keys for the reference. Mistakes are
// collected, each with file, line and column.
package hclfile
