package transport_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// Browsers look at subjectAltName alone. A certificate without it is refused, and the earlier one stays, unless the
// configuration names the hosts.
func TestPageCertificateWithoutAHost(t *testing.T) {
	dir := t.TempDir()
	cert, key := writePagePair(t, dir, "one.test")
	files := transport.PageFiles{Cert: cert, Key: key}
	holder, err := transport.LoadPageCertificate(files)
	if err != nil {
		t.Fatal(err)
	}
	writePagePair(t, dir, "")
	err = holder.Reload(files)
	e, ok := errors.AsType[*model.Error](err)
	if !ok || e.Code != model.CodeCertificateInvalid || !strings.Contains(e.Message, "ui.cert_file "+cert) ||
		!strings.Contains(e.Hint, "subjectAltName") || !strings.Contains(e.Hint, "ui.hosts") {
		t.Errorf("a reload: %v", err)
	}
	if !holder.Covers("one.test") {
		t.Error("the earlier certificate is gone")
	}
	if _, err := transport.LoadPageCertificate(files); err == nil {
		t.Error("a start with it succeeds")
	}
	files.Hosts = []string{"two.test"}
	if err := holder.Reload(files); err != nil || len(holder.NotFor(files.Hosts)) != 1 {
		t.Errorf("with hosts of the configuration: %v; it is not for %q", err, holder.NotFor(files.Hosts))
	}
}

// A refusal for a missing file has a next step.
func TestPageCertificateIsMissing(t *testing.T) {
	cert, key := writePagePair(t, t.TempDir(), "one.test")
	for name, files := range map[string]transport.PageFiles{
		"ui.cert_file": {Cert: cert + "x", Key: key}, "ui.key_file": {Cert: cert, Key: key + "x"},
	} {
		_, err := transport.LoadPageCertificate(files)
		e, ok := errors.AsType[*model.Error](err)
		if !ok || !strings.HasPrefix(e.Message, name) || !strings.Contains(e.Hint, "correct the path") {
			t.Errorf("%s: %v", name, err)
		}
		files.CertAt, files.KeyAt = "a.hcl:3,15", "a.hcl:4,14"
		want := map[string]string{"ui.cert_file": files.CertAt, "ui.key_file": files.KeyAt}[name]
		if _, err := transport.LoadPageCertificate(files); err == nil || !strings.Contains(err.Error(), want+": "+name) {
			t.Errorf("%s with its place: %v", name, err)
		}
	}
}
