// Package config turns the HCL files of a server or an agent into a Config. It reads only the given files. If another
// package has the default of a field, the field stays zero. Errors name the file and, where possible, line and column.
package config
