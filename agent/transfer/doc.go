// Package transfer moves the data of local volumes: from agent to agent, to and from backup archives, and into place on
// a disk. It works with directories and checksums, and knows nothing of instances. While it works on a volume, it keeps
// instances away from the volume with Config.Hold.
//
// Every step can be ordered again after a crash, since the disk shows what is done. Below the directory of the volumes,
// the package keeps these files:
//
//	.transfer/ID/manifest       what is copied: files, sizes, owners, modes
//	.transfer/ID/sums           SHA-256 of each chunk that has arrived
//	.transfer/ID/tree/NAME      the copy
//	.transfer/ID/verified       the sum of the copy, once the copy was read back and compared with its source
//	JOB/GROUP/SLOT/NAME@EPOCH   the old copy of a volume that was moved or replaced
//	JOB/GROUP/SLOT/NAME@copy    the epoch of the data in NAME
package transfer
