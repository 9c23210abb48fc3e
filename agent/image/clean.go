package image

import (
	"context"
	"slices"
	"time"
)

// maxDeleted bounds how many images one Clean deletes.
const maxDeleted = 16

// Marks say when images are deleted, in percent of the disk that holds them.
type Marks struct {
	High int // above it, images are deleted
	Low  int // until the disk is not above it any more
}

// Images is what Clean needs of a Store.
type Images interface {
	Survey(ctx context.Context) (Survey, error)
	Disk(ctx context.Context) (Disk, error)
	Remove(ctx context.Context, dgst string, leave func() bool) (gone bool, err error)
}

// Cleaned is what Clean did.
type Cleaned struct {
	Deleted []Held
	Bytes   int64 // that the deletion freed
	Disk    Disk  // afterwards
	More    bool  // there was no time for all, or an error ended it
}

// Clean deletes images while their disk is above the low mark, if it was above the high one: those that nothing needs,
// the least recently used first, at most 16. leave is called for each before it goes, and returns false if something
// needs it.
func Clean(ctx context.Context, from Images, m Marks, leave func(digest string) bool) (done Cleaned, err error) {
	done.Disk, err = from.Disk(ctx)
	if err != nil || done.Disk.Percent() <= m.High {
		return done, err
	}
	found, err := from.Survey(ctx)
	if err != nil {
		return done, err
	}
	oldest := slices.Clone(found.Images)
	slices.SortStableFunc(oldest, func(a, b Held) int { return a.Used.Compare(b.Used) })
	var digests []string
	for _, h := range oldest {
		if len(digests) == maxDeleted || done.Disk.Percent() <= m.Low {
			break
		}
		gone, err := from.Remove(ctx, h.Digest, func() bool { return leave(h.Digest) })
		if err != nil {
			return done, err
		}
		if !gone {
			continue
		}
		digests, done.Deleted = append(digests, h.Digest), append(done.Deleted, h)
		done.Bytes = found.Frees(digests)
		if done.Disk, err = from.Disk(ctx); err != nil {
			return done, err
		}
	}
	return done, nil
}

// spareTime is how long before the end of its context Prune begins with no further image.
const spareTime = 5 * time.Second

// Prune deletes all images that nothing needs, whatever the disk, or with dry only says which they are. It deletes as
// many as the deadline of ctx allows. After an error, done still names what is deleted.
func Prune(ctx context.Context, from Images, dry bool, leave func(digest string) bool) (done Cleaned, err error) {
	found, err := from.Survey(ctx)
	if err != nil {
		return done, err
	}
	var digests []string
	for _, h := range found.Images {
		gone := false
		if end, ok := ctx.Deadline(); ok && time.Until(end) < spareTime {
			done.More = true
			break
		}
		if dry {
			gone = leave(h.Digest)
		} else if gone, err = from.Remove(ctx, h.Digest, func() bool { return leave(h.Digest) }); err != nil {
			done.More = true
			return done, err
		}
		if gone {
			digests, done.Deleted = append(digests, h.Digest), append(done.Deleted, h)
			done.Bytes = found.Frees(digests)
		}
	}
	done.Disk, err = from.Disk(ctx)
	return done, err
}
