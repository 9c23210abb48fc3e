// Package rolefile reads and writes files with roles and bindings: HCL for people, and the types of package rights.
//
// [Parse] reports mistakes with file, line and column. [Print] writes roles and bindings as a file that Parse reads.
package rolefile
