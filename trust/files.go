package trust

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"os"
	"time"

	"github.com/outspan/outspan/model"
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
// use, and u is forgotten. u is also forgotten if the process could not start with it: if none of the roots that stay
// in the files has signed it. settle blocks as transport.Managed.Lock does. Codes: certificate_invalid, and those of
// Lock and Write.
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
	err = u.write(ctx, dir, role)
	switch {
	case err == nil:
		*u = unwritten{}
	case refusedAs(err, model.CodeCertificateInvalid):
		*u = unwritten{}
		return inFile, err
	}
	return use, err
}

// write replaces the certificate of a role, and the roots and the gossip keys unless the files have newer ones. Then it
// forgets those of u. Server and agent of a process share the directory, so it decides and writes under the lock.
// Codes: certificate_invalid if none of the roots that the files would have signed the certificate; those of Lock and
// Write.
func (u *unwritten) write(ctx context.Context, dir transport.Managed, role pki.Role) error {
	return dir.Lock(ctx, func() (err error) {
		files := transport.ManagedFiles{Pairs: map[pki.Role]tls.Certificate{role: u.pair}}
		// Damaged notes don't say how new the files are. The next news replace them.
		known, noteErr := readNotes(dir)
		if noteErr != nil || known.At >= u.at {
			u.roots, u.gossip = nil, nil
		}
		inFile, err := dir.Roots()
		if len(u.roots) > 0 {
			known.At = u.at
			if files.News, err = json.Marshal(known); err != nil {
				return err
			}
			files.Roots, files.GossipKeys = u.roots, u.gossip
			inFile, err = parseRoots(u.roots)
		}
		if err != nil {
			return err
		}
		if err := goodUnder(u.pair.Leaf, inFile); err != nil {
			return model.Refuse(model.CodeCertificateInvalid, "a new certificate of the %s is not good under the CAs that its "+
				"file %s would have: %v", role, dir.RootsFile(), err).
				WithHint("this machine may know less than the cluster; it tries again")
		}
		return dir.Write(files)
	})
}

func parseRoots(all [][]byte) (roots []*x509.Certificate, err error) {
	for _, der := range all {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, err
		}
		roots = append(roots, root)
	}
	return roots, nil
}

// goodUnder refuses a certificate that none of the roots has signed. Whether it has expired is for others to decide.
func goodUnder(leaf *x509.Certificate, roots []*x509.Certificate) error {
	pool := x509.NewCertPool()
	for _, root := range roots {
		pool.AddCert(root)
	}
	at := time.Now()
	switch {
	case at.Before(leaf.NotBefore):
		at = leaf.NotBefore
	case at.After(leaf.NotAfter):
		at = leaf.NotAfter
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: pool, CurrentTime: at,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
	return err
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
