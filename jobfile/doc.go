// Package jobfile reads and writes job files: it turns HCL into a model.JobSpec, and a model.JobSpec into HCL.
//
// [Parse] reports mistakes with file, line and column. [Print] writes an expanded job as a file that states every
// value. Parse and Print use the same table of keys. The reference of job files is generated from this table too.
package jobfile
