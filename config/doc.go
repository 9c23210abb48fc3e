// Package config turns the HCL files of a server or an agent into a Config. It reads only the given files. Defaults
// that belong to other packages are not filled in here. Errors name the file and, where possible, the line and the
// column.
package config
