package pki_test

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

func TestRequest(t *testing.T) {
	many := make([]string, 16)
	for i := range many {
		many[i] = fmt.Sprintf("%s.%s.%s.h%02d", rep("a", 63), rep("b", 63), rep("c", 63), i) + "." + rep("d", 53)
	}
	for _, tt := range []struct {
		role  pki.Role
		name  string
		hosts []string
		want  []string
	}{
		{pki.RoleAgent, "n1", nil, nil},
		{pki.RoleServer, "s_1@rack", []string{"10.0.0.1", "s1.lan", "fd00::1"}, []string{"s1.lan", "10.0.0.1", "fd00::1"}},
		{pki.RoleAgent, "n1", []string{"::ffff:10.0.0.1", "localhost"}, []string{"localhost", "10.0.0.1"}},
		{pki.RoleAgent, rep("n", 128), many, many},
	} {
		der, key, err := pki.NewRequest(tt.role, tt.name, tt.hosts)
		if err != nil {
			t.Fatal(err)
		}
		got, err := pki.ParseRequest(der, tt.role)
		if err != nil {
			t.Fatal(err)
		}
		if got.Role != tt.role || got.Name != tt.name || !slices.Equal(got.Hosts, tt.want) ||
			!key.PublicKey.Equal(got.PublicKey) {
			t.Errorf("%s %s %v came back as %+v", tt.role, tt.name, tt.hosts, got)
		}
		if len(der) > 8<<10 {
			t.Errorf("the largest request has %d bytes", len(der))
		}
	}
	_, one, _ := pki.NewRequest(pki.RoleAgent, "n1", nil)
	_, two, _ := pki.NewRequest(pki.RoleAgent, "n1", nil)
	if one.Equal(two) {
		t.Error("two requests have the same key")
	}
}

// What NewRequest refuses is refused from a newcomer too, whatever program it runs.
func TestRequestBounds(t *testing.T) {
	key := newKey(t)
	for name, tt := range map[string]struct {
		role  pki.Role
		name  string
		hosts []string
		want  []string
	}{
		"cli with a host": {pki.RoleCLI, "alice", []string{"a.lan"}, []string{"a person's certificate has no hosts"}},
		"unknown role":    {"root", "n1", nil, []string{`role "root" is unknown`}},
		"no name":         {pki.RoleAgent, "", nil, []string{`agent name "" is not usable`}},
		"a path":          {pki.RoleAgent, "a/b", nil, []string{"not usable"}},
		"a long name":     {pki.RoleAgent, rep("n", 129), nil, []string{"at most 128"}},
		"many hosts":      {pki.RoleAgent, "n1", slices.Repeat([]string{"a.lan"}, 17), []string{"17 hosts, at most 16"}},
		"name of a role":  {pki.RoleAgent, "n1", []string{"server.outspan"}, []string{"reserved"}},
		"in upper case":   {pki.RoleAgent, "n1", []string{"Server.OUTSPAN"}, []string{"reserved"}},
		"a URL":           {pki.RoleAgent, "n1", []string{"https-//a"}, []string{"neither an IP address nor a DNS name"}},
		"a long host":     {pki.RoleAgent, "n1", []string{rep("a.", 126) + "aa"}, []string{"nor a DNS name"}},
		"a wildcard":      {pki.RoleAgent, "n1", []string{"*.lan"}, []string{"more than one machine"}},
		"every wildcard":  {pki.RoleAgent, "n1", []string{"*"}, []string{"more than one machine"}},
		"every address":   {pki.RoleAgent, "n1", []string{"0.0.0.0"}, []string{"more than one machine"}},
		"every address 6": {pki.RoleAgent, "n1", []string{"::"}, []string{"more than one machine"}},
		"multicast":       {pki.RoleAgent, "n1", []string{"ff02::1"}, []string{"more than one machine"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := pki.NewRequest(tt.role, tt.name, tt.hosts)
			wantCode(t, err, model.CodeInvalid, tt.want...)
			template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: string(tt.role) + "/" + tt.name}}
			for _, h := range tt.hosts {
				if ip := net.ParseIP(h); ip != nil {
					template.IPAddresses = append(template.IPAddresses, ip)
				} else {
					template.DNSNames = append(template.DNSNames, h)
				}
			}
			_, err = pki.ParseRequest(request(t, template, key), tt.role)
			wantCode(t, err, model.CodeInvalid, tt.want...)
		})
	}
}

func TestParseRequestRefuses(t *testing.T) {
	good, _, err := pki.NewRequest(pki.RoleAgent, "n1", []string{"n1.lan"})
	if err != nil {
		t.Fatal(err)
	}
	_, err = pki.ParseRequest(good, pki.RoleServer)
	wantCode(t, err, model.CodeForbidden, "for the role agent", "only server is allowed")
	key := newKey(t)
	edited := func(edit func(*x509.CertificateRequest)) []byte {
		template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "agent/n1"}, DNSNames: []string{"n1.lan"}}
		edit(template)
		return request(t, template, key)
	}
	with := func(id asn1.ObjectIdentifier, value []byte) []byte {
		return edited(func(r *x509.CertificateRequest) {
			r.DNSNames, r.ExtraExtensions = nil, []pkix.Extension{{Id: id, Value: value}}
		})
	}
	otherCurve, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	plain := &x509.CertificateRequest{Subject: pkix.Name{CommonName: "agent/n1"}}
	san := asn1.ObjectIdentifier{2, 5, 29, 17}
	for name, tt := range map[string]struct {
		der  []byte
		want []string
	}{
		"nothing":       {nil, []string{"is damaged"}},
		"text":          {[]byte("-----BEGIN CERTIFICATE REQUEST-----"), []string{"is damaged"}},
		"cut off":       {good[:len(good)-1], []string{"is damaged"}},
		"continued":     {append(bytes.Clone(good), 0), []string{"is damaged"}},
		"too large":     {make([]byte, 8<<10+1), []string{"has 8193 bytes, at most 8192"}},
		"another name":  {bytes.Replace(good, []byte("agent/n1"), []byte("agent/n2"), 1), []string{"not signed by"}},
		"another host":  {bytes.Replace(good, []byte("n1.lan"), []byte("n2.lan"), 1), []string{"not signed by"}},
		"another curve": {request(t, plain, otherCurve), []string{"not ECDSA P-256"}},
		"Ed25519":       {request(t, plain, edwards), []string{"not ECDSA P-256"}},
		"RSA":           {request(t, plain, rsaKey), []string{"not ECDSA P-256"}},
		"an identity": {edited(func(r *x509.CertificateRequest) {
			r.URIs = []*url.URL{{Scheme: "outspan", Host: "c1", Path: "/server/s1"}}
		}), []string{"neither a DNS name nor an IP address"}},
		"a mail address": {edited(func(r *x509.CertificateRequest) { r.EmailAddresses = []string{"a@b.lan"} }),
			[]string{"neither a DNS name nor an IP address"}},
		"a name of an unknown kind": {with(san, []byte{0x30, 3, 0x88, 1, 42}), []string{"neither a DNS name"}},
		"a CA": {with(asn1.ObjectIdentifier{2, 5, 29, 19}, []byte{0x30, 3, 1, 1, 0xff}),
			[]string{"extension 2.5.29.19"}},
		"a usage of the key": {with(asn1.ObjectIdentifier{2, 5, 29, 15}, []byte{3, 2, 2, 4}),
			[]string{"extension 2.5.29.15"}},
		"an organization": {edited(func(r *x509.CertificateRequest) { r.Subject.Organization = []string{"root"} }),
			[]string{"subject other than"}},
		"two names": {edited(func(r *x509.CertificateRequest) {
			r.Subject.ExtraNames = []pkix.AttributeTypeAndValue{{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "agent/n2"},
				{Type: asn1.ObjectIdentifier{2, 5, 4, 3}, Value: "agent/n1"}}
		}), []string{"subject other than"}},
		"no subject": {edited(func(r *x509.CertificateRequest) { r.Subject = pkix.Name{} }), []string{"subject other than"}},
		"no role": {edited(func(r *x509.CertificateRequest) { r.Subject.CommonName = "n1" }),
			[]string{"subject other than"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := pki.ParseRequest(tt.der, pki.RoleAgent)
			wantCode(t, err, model.CodeInvalid, tt.want...)
		})
	}
}

// An accepted request asks only for names that NewRequest accepts too. The fuzzer changes the encoded request, and the
// names in a request that is then signed.
func FuzzParseRequest(f *testing.F) {
	der, _, err := pki.NewRequest(pki.RoleAgent, "n1", []string{"n1.lan", "10.0.0.1"})
	if err != nil {
		f.Fatal(err)
	}
	key := newKey(f)
	f.Add(der, "agent/n1", "n1.lan", []byte{10, 0, 0, 1})
	f.Add([]byte{0x30, 0x80}, "server/s1", "*.outspan", []byte{0, 0, 0, 0})
	f.Add([]byte{}, "cli/a", "A.Outspan", []byte(net.IPv6loopback))
	f.Fuzz(func(t *testing.T, der []byte, subject, host string, address []byte) {
		requests := [][]byte{der}
		made, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
			Subject: pkix.Name{CommonName: subject}, DNSNames: []string{host}, IPAddresses: []net.IP{address}}, key)
		if err == nil {
			requests = append(requests, made)
		}
		for _, der := range requests {
			got, err := pki.ParseRequest(der, pki.RoleAgent)
			if err != nil {
				if e, ok := errors.AsType[*model.Error](err); !ok || e.Code != model.CodeInvalid && e.Code != model.CodeForbidden ||
					len(e.Message) > 600 {
					t.Fatalf("refused with %v", err)
				}
				continue
			}
			again, _, err := pki.NewRequest(got.Role, got.Name, got.Hosts)
			if err != nil {
				t.Fatalf("accepted %+v, which NewRequest refuses: %v", got, err)
			}
			second, err := pki.ParseRequest(again, pki.RoleAgent)
			if err != nil || second.Name != got.Name || !slices.Equal(second.Hosts, got.Hosts) || got.Role != pki.RoleAgent ||
				slices.ContainsFunc(got.Hosts, func(h string) bool { return strings.HasSuffix(strings.ToLower(h), ".outspan") }) {
				t.Fatalf("%+v came back as %+v, %v", got, second, err)
			}
		}
	})
}

func request(t testing.TB, template *x509.CertificateRequest, key crypto.Signer) []byte {
	t.Helper()
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}
