package driver

// WriteRecord replaces the file at path by v, encoded as CBOR with a checksum. When it returns nil the value survives
// a power cut; a crash at any byte leaves the old value or the new one.
func WriteRecord(path string, v any) error { return writeRecord(path, v) }

// ReadRecord fills v with what WriteRecord wrote. The error is os.ErrNotExist when there is no such file; any other
// means that the file can't be trusted.
func ReadRecord(path string, v any) error { return readRecord(path, v) }
