package image

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
)

// SetUsed makes all images look as if they were pulled and last used at this time.
func (s *Store) SetUsed(ctx context.Context, t *testing.T, at time.Time) {
	t.Helper()
	list, err := s.client.ImageService().List(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		i.Labels = map[string]string{usedLabel: at.UTC().Format(time.RFC3339)}
		if _, err := s.client.ImageService().Update(ctx, i, "labels."+usedLabel); err != nil {
			t.Fatal(err)
		}
	}
}

// Lease makes a lease as a pull does.
func (s *Store) Lease(ctx context.Context, id string) error {
	_, err := s.client.LeasesService().Create(ctx, leases.WithID(id))
	return err
}

// Leases lists the leases, sorted.
func (s *Store) Leases(ctx context.Context) (ids []string, err error) {
	list, err := s.client.LeasesService().List(ctx)
	for _, l := range list {
		ids = append(ids, l.ID)
	}
	slices.Sort(ids)
	return ids, err
}

// OwnLease reports whether a pull of this process made a lease.
func (s *Store) OwnLease(id string) bool { return s.ownLease(id) }
