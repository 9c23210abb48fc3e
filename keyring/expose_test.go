package keyring

// Secrets returns the bytes of keys that can't be read outside the package.
func Secrets(d DEK, m MACKey) [][]byte { return [][]byte{d.secret(), m.secret()} }
