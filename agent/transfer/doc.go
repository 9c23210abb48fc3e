// Package transfer moves the data of local volumes: from agent to agent, to and from backup archives, and into place on
// a disk. It knows directories and sums, not instances: Config.Hold keeps instances away from a volume meanwhile.
//
// Every step can be ordered again after a crash, since the disk shows what is done. Below the directory of the volumes
// the package keeps
//
//	.transfer/ID/manifest   what is copied: files, sizes, owners, modes
//	.transfer/ID/sums       SHA-256 of each chunk that has arrived
//	.transfer/ID/tree/NAME  the copy
//	.transfer/ID/verified   its sum, once every chunk was read back and compared with the source's disk
//	JOB/GROUP/SLOT/NAME@EPOCH   the old copy of a volume that was moved or replaced
package transfer
