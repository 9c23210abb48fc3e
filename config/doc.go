// Package config turns the HCL files of a server or an agent into a Config. It reads only the given files, and sets no
// defaults that belong to other packages. It reports every mistake with file, line and column, not just the first.
package config
