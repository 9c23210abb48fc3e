package transport

import (
	"crypto/tls"
	"errors"
	"io/fs"
	"os"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Authority reads the CA and its key. found is false if there is no ca-key.pem. Codes: certificate_invalid, file_error.
func (m Managed) Authority() (ca *Authority, found bool, err error) {
	if _, err := os.Lstat(m.CAKeyFile()); errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	ca, err = readAuthority(m.path)
	return ca, true, err
}

// DropCAKey removes ca-key.pem, and returns once a power cut can't bring the file back. It does nothing if there is no
// such file. Code: file_error.
func (m Managed) DropCAKey() error {
	err := os.Remove(m.CAKeyFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = syncDir(m.path)
	}
	if err != nil {
		return fileError("remove", m.CAKeyFile(), err)
	}
	return nil
}

// Pair reads the certificate and the key of a role, even if the certificate has expired. found is false if there is no
// certificate of the role. Code: certificate_invalid.
func (m Managed) Pair(role pki.Role) (pair tls.Certificate, found bool, err error) {
	if _, err := os.Lstat(m.CertFile(role)); errors.Is(err, fs.ErrNotExist) {
		return tls.Certificate{}, false, nil
	}
	key := m.KeyFile(role)
	if m.fits(role, m.nextKeyFile(role)) {
		key = m.nextKeyFile(role)
	}
	if pair, err = tls.LoadX509KeyPair(m.CertFile(role), key); err != nil {
		return tls.Certificate{}, true, model.Refuse(model.CodeCertificateInvalid, "the certificate %s and its key can't be "+
			"used: %v", m.CertFile(role), bareError(err)).WithHint("%s", managedHint)
	}
	return pair, true, nil
}

// newsFile is the name of a file in a managed directory.
const newsFile = "news.json"

// News reads news.json. It returns nothing if there is no such file. Code: file_error.
func (m Managed) News() ([]byte, error) {
	text, err := pki.ReadFile(m.file(newsFile))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fileError("read", m.file(newsFile), err)
	}
	return text, nil
}
