package trust

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"time"

	"github.com/outspan/outspan/pki"
	"github.com/outspan/outspan/transport"
)

// unwritten is a new certificate that is not in the files yet. It can be used all the same, so a full disk does not end
// the certificate of a process that runs. In the zero value there is none.
type unwritten struct {
	pair          tls.Certificate // pair.Leaf is nil if there is none
	roots, gossip [][]byte
	at            uint64 // the number of the state that roots and gossip come from; see notes
	over          []byte // the certificate in the files that it replaces, as DER
}

// settle writes the certificate to the files of a role, and returns the certificate to use, even if it can't be
// written. inFile is the certificate in the files. If another process has replaced that meanwhile, it is the one to
// use, and u is forgotten. settle blocks as transport.Managed.Lock does. Codes: those of Lock and Write.
func (u *unwritten) settle(ctx context.Context, dir transport.Managed, role pki.Role,
	inFile tls.Certificate) (use tls.Certificate, err error) {
	switch {
	case u.pair.Leaf == nil:
		return inFile, nil
	case !bytes.Equal(inFile.Leaf.Raw, u.over) && !bytes.Equal(inFile.Leaf.Raw, u.pair.Leaf.Raw):
		*u = unwritten{}
		return inFile, nil
	}
	use = u.pair
	if known, err := readNotes(dir); err == nil && known.At >= u.at { // the files have newer ones
		u.roots, u.gossip = nil, nil
	}
	if err = write(ctx, dir, role, use, u.roots, u.gossip); err == nil {
		*u = unwritten{}
	}
	return use, err
}

// write replaces the files of a role. Server and agent of a process share the directory, so it takes the lock.
func write(ctx context.Context, dir transport.Managed, role pki.Role, pair tls.Certificate,
	roots, gossip [][]byte) error {
	files := transport.ManagedFiles{Roots: roots, GossipKeys: gossip, Pairs: map[pki.Role]tls.Certificate{role: pair}}
	return dir.Lock(ctx, func() error { return dir.Write(files) })
}

// lookAtFiles is how often a process that waits looks whether another one has replaced a file.
const lookAtFiles = 10 * time.Second

// pauseUnlessReplaced waits for d, until ctx ends, or until one of the files is replaced, whichever is first.
func pauseUnlessReplaced(ctx context.Context, d time.Duration, paths ...string) {
	before := make([]os.FileInfo, len(paths))
	for i, path := range paths {
		before[i], _ = os.Stat(path) // a missing file counts as one
	}
	for end := time.Now().Add(d); ctx.Err() == nil && time.Now().Before(end); {
		sleep(ctx, min(time.Until(end), lookAtFiles))
		for i, path := range paths {
			was := before[i]
			if now, _ := os.Stat(path); !os.SameFile(was, now) && (was != nil || now != nil) {
				return
			}
		}
	}
}

// hostsOf returns the hosts of a certificate, without those that each certificate of its role has.
func hostsOf(cert *x509.Certificate) []string {
	var hosts []string
	for _, name := range cert.DNSNames {
		if name != pki.RoleServer.ServerName() && name != pki.RoleAgent.ServerName() && name != "localhost" {
			hosts = append(hosts, name)
		}
	}
	for _, ip := range cert.IPAddresses {
		if !ip.Equal(net.IPv4(127, 0, 0, 1)) && !ip.Equal(net.IPv6loopback) {
			hosts = append(hosts, ip.String())
		}
	}
	return hosts
}
