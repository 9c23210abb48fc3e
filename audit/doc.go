// Package audit keeps the audit log of a server: one line of JSON for each write, each refusal and each read that
// reveals something. A line says who did what, and never contains a secret.
//
// Each destination (a file, the standard output, syslog) has a bounded queue, and a goroutine that writes the lines. So
// a slow disk delays nobody who does not ask for it, and no other destination: Log.Record never blocks, and Log.Begin
// has a bound.
package audit
