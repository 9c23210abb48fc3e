// Package transfer moves the data of local volumes: from agent to agent, to and from backup archives, and into its
// place on a disk. It knows directories and sums, not instances: who may use a volume meanwhile is its caller's
// business, told by Config.Hold.
//
// Everything that it does can be told again after a crash: what is done is read from the disk. Below the directory of
// the volumes it keeps
//
//	.transfer/ID/manifest   what is copied: files, sizes, owners, modes
//	.transfer/ID/sums       SHA-256 of each chunk that has arrived
//	.transfer/ID/tree/NAME  the copy
//	.transfer/ID/verified   its sum, once every chunk was read back and compared with what the source has on its disk
//	.kept/ID/NAME           the old copy of a volume that was moved or replaced
package transfer
