// Package config turns HCL files into plain values: job files into model.JobSpec, a server's or an agent's files into
// Config. It reads only what it is given, knows no defaults that belong to others, and reports every mistake with file,
// line and column, not just the first.
package config
