// Package jobfile reads and writes job files: HCL for people on one side, model.JobSpec on the other.
//
// [Parse] reports every mistake with file, line and column, not just the first. [Print] writes the file that says all
// of an expanded job. Both follow one table of keys, which the reference of job files comes from, too.
package jobfile
