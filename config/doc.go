// Package config turns the HCL files of a server or an agent into a Config. It reads only what it is given, knows no
// defaults that belong to others, and reports every mistake with file, line and column, not just the first.
package config
