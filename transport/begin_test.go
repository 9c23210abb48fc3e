package transport_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// A certificate is valid from the moment from which its CA is, whatever the clock said when it was made. Its age is
// known all the same.
func TestCertificatesBeginWithTheirCA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := authority(t, "c1")
		time.Sleep(100 * 24 * time.Hour)
		leaf := issued(t, ca, must(pki.NewKey())(t)).Leaf
		if !leaf.NotBefore.Equal(ca.Root().NotBefore) {
			t.Errorf("valid from %s, the CA from %s", leaf.NotBefore, ca.Root().NotBefore)
		}
		if off := time.Since(transport.LifetimeOf(leaf).From).Abs(); off > time.Second {
			t.Errorf("its age is wrong by %s", off)
		}
	})
}
