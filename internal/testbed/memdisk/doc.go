// Package memdisk simulates the disk of one machine, for tests of whole clusters in fake time. The files are real,
// because the product's own bbolt, snapshots and journals use them. The test chooses their directory, preferably one in
// memory. The faults are simulated: writes to a log store can be slow, fail, hang, or find the disk full. A power loss
// keeps what was synced to the disk and a random part of the writes in progress.
//
// A power loss makes an image of the directory as the next start may find it, and the machine continues with the image.
// Later writes of the old process go to the old directory, which nobody reads again. In the image:
//
//   - The log has all acknowledged writes and some of the transactions in progress. One of these may be torn, as
//     bbolt's order of writes and its two fdatasync calls allow: some sectors of its pages with the old meta page, or
//     all its pages with a torn meta page.
//   - The newest snapshot may be unfinished, if the log still has all entries since the previous snapshot.
//   - A file that was being replaced by a rename has the old content or the new one. The temporary file may be left.
//
// Faults that are not simulated are reads that fail, sectors that change on their own, and lost directory entries.
package memdisk
