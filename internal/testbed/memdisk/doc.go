// Package memdisk is the disk of one machine in tests of whole clusters in fake time. The files are real ones, below a
// directory that the test chooses (best in memory), because the product's own bbolt, snapshots and journals work on
// them. What is made here is what goes wrong: a log store whose writes take their time, fail, hang, or find the disk
// full, and a power loss, which keeps what was forced to the disk and a random part of what was under way.
//
// A power loss makes an image of the directory as it may be found at the next start, and the machine goes on with the
// image; whatever the process that lost its power still writes goes to the old directory, which nobody reads again. In
// the image:
//
//   - every write to the log that was acknowledged is there. Of the transactions under way some are there, one may be
//     torn, as bbolt's order of writes and its two fdatasync calls allow: some sectors of its pages under the old meta
//     page, or all pages and a torn meta page;
//   - the newest snapshot may be unfinished, where the log still has what it holds;
//   - files that are replaced by a rename hold the old text or the new one; remains of the replacement lie about.
//
// Not modelled: reads that fail, sectors that change by themselves, and directories whose entries get lost.
package memdisk
