package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"net"
	"strings"

	"github.com/outspan/outspan/model"
)

const (
	maxRequest = 8 << 10 // bytes of a certificate request: room for maxHosts of the longest names
	maxHosts   = 16      // hosts in a certificate request
)

// Request is a request for a certificate, whose sender proved that it has the private key. A CA builds the certificate
// from these fields alone.
type Request struct {
	Role Role
	Name string
	// Hosts are the DNS names and IP addresses that the sender wants besides those of its role, at most 16. The sender
	// chose them freely: they are no proof that it has these addresses. A CA grants them to servers only.
	Hosts     []string
	PublicKey *ecdsa.PublicKey // on the curve P-256
	// AdmittedAt is not from the sender, and ParseRequest leaves it 0. The signer sets it; see the function AdmittedAt.
	AdmittedAt uint64
}

// NewRequest makes a new key, and a PKCS#10 request (DER) for a certificate of this key. Hosts are further DNS names
// and IP addresses, as in Request. Code: invalid.
func NewRequest(role Role, name string, hosts []string) (der []byte, key *ecdsa.PrivateKey, err error) {
	if err := checkRequest(role, name, hosts); err != nil {
		return nil, nil, err
	}
	if key, err = NewKey(); err != nil {
		return nil, nil, err
	}
	der, err = RequestFor(key, role, name, hosts)
	return der, key, err
}

// NewKey makes a key of the kind that a Request has. Code: internal.
func NewKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, model.Refuse(model.CodeInternal, "can't make a key: %v", err)
	}
	return key, nil
}

// RequestFor is NewRequest for a key that exists already, and which must be on the curve P-256. Code: invalid.
func RequestFor(key *ecdsa.PrivateKey, role Role, name string, hosts []string) (der []byte, err error) {
	if err := checkRequest(role, name, hosts); err != nil {
		return nil, err
	}
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: Identity{Role: role, Name: name}.String()}}
	for _, h := range hosts {
		if ip := net.ParseIP(h); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, h)
		}
	}
	if der, err = x509.CreateCertificateRequest(rand.Reader, template, key); err != nil {
		return nil, model.Refuse(model.CodeInvalid, "can't make a certificate request for %s %s: %v", role, name, err)
	}
	return der, nil
}

// ParseRequest reads a request as NewRequest makes it, from a peer that may have the role want. It refuses a request
// that is larger than 8 KiB, is not signed by its own key, or asks for anything besides its role, name and hosts.
// Codes: invalid, forbidden (another role).
func ParseRequest(der []byte, want Role) (Request, error) {
	if len(der) > maxRequest {
		return Request{}, refuseRequest("has %d bytes, at most %d are allowed", len(der), maxRequest)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return Request{}, refuseRequest("is damaged: %s", model.Clip(err.Error()))
	}
	key, ok := csr.PublicKey.(*ecdsa.PublicKey)
	if !ok || key.Curve != elliptic.P256() {
		return Request{}, refuseRequest("is for a key that is not ECDSA P-256")
	}
	if err := csr.CheckSignature(); err != nil {
		return Request{}, refuseRequest("is not signed by its own key: %s", model.Clip(err.Error()))
	}
	if err := checkExtensions(csr); err != nil {
		return Request{}, err
	}
	role, name, found := strings.Cut(csr.Subject.CommonName, "/")
	if !found || len(csr.Subject.Names) != 1 {
		return Request{}, refuseRequest("has a subject other than CN=role/name")
	}
	r := Request{Role: Role(role), Name: name, Hosts: csr.DNSNames, PublicKey: key}
	for _, ip := range csr.IPAddresses {
		r.Hosts = append(r.Hosts, ip.String())
	}
	if err := checkRequest(r.Role, r.Name, r.Hosts); err != nil {
		return Request{}, err
	}
	if r.Role != want {
		refusal := model.Refuse(model.CodeForbidden, "the certificate request is for the role %s, and only %s is allowed",
			r.Role, want)
		if r.Role == RoleCLI || want == RoleCLI {
			return Request{}, refusal.WithHint("machines join with a token: outspan join; people: outspan cert create NAME")
		}
		return Request{}, refusal.WithHint("make a join token for the role %s", r.Role)
	}
	return r, nil
}

// checkExtensions refuses a request for a CA, for other usages of the key, and for names that Request can't hold.
func checkExtensions(csr *x509.CertificateRequest) error {
	subjectAltName := asn1.ObjectIdentifier{2, 5, 29, 17}
	for _, extension := range csr.Extensions {
		if !extension.Id.Equal(subjectAltName) {
			return refuseRequest("asks for the extension %s", model.Clip(extension.Id.String()))
		}
		// crypto/x509 skips kinds of names that it does not know, so count them.
		var all []asn1.RawValue
		if _, err := asn1.Unmarshal(extension.Value, &all); err != nil || len(all) != len(csr.DNSNames)+len(csr.IPAddresses) {
			return refuseRequest("asks for a name that is neither a DNS name nor an IP address")
		}
	}
	return nil
}

func checkRequest(role Role, name string, hosts []string) error {
	if !role.Valid() {
		return model.Refuse(model.CodeInvalid, "role %q is unknown", model.Clip(string(role))).
			WithHint("use server, agent or cli")
	}
	if role == RoleCLI && len(hosts) > 0 {
		return model.Refuse(model.CodeInvalid, "a person's certificate has no hosts: nobody connects to it").
			WithHint("leave them out")
	}
	if !ValidName(name) {
		return model.Refuse(model.CodeInvalid, "%s name %q is not usable", role, model.Clip(name)).
			WithHint("use at most 128 letters, digits and \"-_.@\", starting with a letter or digit")
	}
	if len(hosts) > maxHosts {
		return model.Refuse(model.CodeInvalid, "%s %s has %d hosts, at most %d are allowed", role, name,
			len(hosts), maxHosts).
			WithHint("leave some out: outspan itself needs none of them")
	}
	for _, h := range hosts {
		if err := CheckHost(h); err != nil {
			return err
		}
		ip := net.ParseIP(h)
		if strings.HasPrefix(h, "*") || ip.IsUnspecified() || ip.IsMulticast() {
			return model.Refuse(model.CodeInvalid, "host %q stands for more than one machine", h).
				WithHint("give the names and addresses of the machine itself")
		}
	}
	return nil
}

func refuseRequest(format string, args ...any) *model.Error {
	return model.Refuse(model.CodeInvalid, "the certificate request "+format, args...).
		WithHint("make the request with the same version of outspan as the servers have")
}
