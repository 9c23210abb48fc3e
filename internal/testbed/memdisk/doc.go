// Package memdisk simulates the disk of one machine, for tests of whole clusters in fake time. The files are real,
// because the product's own bbolt, snapshots and journals use them. The test chooses their directory, best one in
// memory. The faults are simulated: a log store's writes can be slow, fail, hang, or find the disk full. A power loss
// keeps what was synced to the disk and a random part of the writes in progress.
//
// A power loss makes an image of the directory as the next start may find it, and the machine continues with the image.
// Later writes of the old process go to the old directory, which nobody reads again. In the image:
//
// - every acknowledged write to the log is there. Of the transactions in progress some are there, and one may be torn,
// as bbolt's order of writes and its two fdatasync calls allow: some sectors of its pages under the old meta page, or
// all pages and a torn meta page; - the newest snapshot may be unfinished, if the log still has what it holds; - files
// that are replaced by a rename hold the old text or the new one; remains of the replacement may be left.
//
// Not simulated: reads that fail, sectors that change on their own, and lost directory entries.
package memdisk
