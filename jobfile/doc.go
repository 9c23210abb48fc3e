// Package jobfile reads and writes job files: HCL for people on one side, model.JobSpec on the other.
//
// [Parse] reports every mistake with file, line and column, not just the first. [Print] writes an expanded job as a
// file that states everything. Both use one table of keys, which the reference of job files also comes from.
package jobfile
