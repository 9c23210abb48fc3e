// Package memdisk simulates the disk of one machine, for tests of whole clusters in fake time. The files are real,
// because outspan's own bbolt, snapshots and journals use them. The test chooses their directory, preferably one in
// memory. The faults are simulated: writes to a log store can be slow, fail, hang, or find the disk full. After a power
// loss, the disk has what was synced to it and a random part of the writes in progress.
//
// A power loss makes an image of the directory as the next start may find it, and the machine continues with the image.
// Later writes of the old process go to the old directory, which nobody reads again. In the image:
//
//   - The log has all acknowledged writes and some of the transactions in progress. One of these transactions may be
//     torn, as bbolt's order of writes and its two fdatasync calls allow: the file has some sectors of the
//     transaction's pages and the old meta page, or all these pages and a torn meta page.
//   - The newest snapshot may be unfinished, if the log still has all entries since the previous snapshot.
//   - A file that was being replaced by a rename has the old or the new content. The temporary file may still exist.
//
// Three kinds of faults are not simulated: reads that fail, sectors that change on their own, and lost directory
// entries.
package memdisk
