// Package config turns the HCL files of a server or an agent into a Config. It reads only the given files. A field
// whose default belongs to another package stays empty. Errors name the file and, where possible, the line and the
// column.
package config
