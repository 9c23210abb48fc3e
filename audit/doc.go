// Package audit keeps the audit log of a server: one line of JSON for each write, each refusal and each read that
// reveals something. A line says who did what, and never contains a secret.
//
// Lines go through a bounded queue to one goroutine, which writes them to a file, to the standard output or to syslog.
// So a slow disk delays nobody who does not ask for it: Log.Record never blocks, and Log.Begin has a bound.
package audit
