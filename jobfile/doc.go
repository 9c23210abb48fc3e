// Package jobfile reads and writes job files: HCL for people on one side, model.JobSpec on the other.
//
// [Parse] reports all mistakes, each with file, line and column. [Print] writes an expanded job as a file that states
// every value. Both use one table of keys; the reference of job files is generated from the same table.
package jobfile
