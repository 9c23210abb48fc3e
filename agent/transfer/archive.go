package transfer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/model"
)

// An archive has its own directory below the backup directory, with these files. data.tar is a plain tar. The manifest
// has the SHA-256 of each chunk of data.tar. manifest.json.sha256 has the SHA-256 of the manifest, in the format of
// sha256sum.
const (
	archiveData     = "data.tar"
	archiveManifest = "manifest.json"
	archiveSum      = "manifest.json.sha256"
	archiveFormat   = 1

	maxArchiveManifest = 256 << 20 // in bytes; the manifest for 10 TiB of data has 200 MB
	maxArchiveBytes    = 12 << 40  // total size of the files, including holes; the manifest has room for their sums
)

// archive is the manifest of a backup.
type archive struct {
	Format    int            `json:"format"`
	ID        model.BackupID `json:"id"`
	Group     model.GroupID  `json:"group"`
	Slot      int            `json:"slot"`
	Volumes   []string       `json:"volumes"`
	Live      bool           `json:"live"` // an instance may have written during the backup
	CreatedMS int64          `json:"created_unix_ms"`
	Bytes     int64          `json:"bytes"` // of data.tar
	// disk space of the archived files in bytes; less than their sizes if the files had holes
	DiskBytes  int64    `json:"disk_bytes"`
	ChunkBytes int64    `json:"chunk_bytes"`
	OwnUID     int      `json:"own_uid,omitempty"` // user id of the instances that used the volumes; see userOf
	Sums       []string `json:"sha256"`            // of each chunk of data.tar, in hex
}

// readArchive reads and checks a manifest. want is the manifest's sum, as it was reported when the backup was made. If
// want is empty, the sum is not checked. Codes: not_found, integrity_check_failed.
func readArchive(dir string, id model.BackupID, want string) (archive, error) {
	var a archive
	raw, err := readBounded(filepath.Join(dir, archiveManifest), maxArchiveManifest)
	if errors.Is(err, os.ErrNotExist) {
		return a, model.Refuse(model.CodeNotFound, "there is no backup %s in the backup directory of this node", id).
			WithHint("restore it on a node that has the archive in its backup_dir")
	}
	if err != nil {
		return a, asCode(err, "read the manifest of the backup")
	}
	sum := sha256.Sum256(raw)
	if got := hex.EncodeToString(sum[:]); want != "" && got != want {
		return a,
			model.Refuse(model.CodeIntegrity,
				"the manifest of backup %s is not the one that was written: its sum is %.12s, not %.12s", id, got, want)
	}
	if err := json.Unmarshal(raw, &a); err != nil || a.Format != archiveFormat || a.ID != id ||
		a.ChunkBytes != chunkBytes || a.Bytes < 0 || a.DiskBytes < 0 ||
		int64(len(a.Sums)) != (a.Bytes+chunkBytes-1)/chunkBytes {
		return a, model.Refuse(model.CodeIntegrity, "the manifest of backup %s can't be used", id)
	}
	return a, nil
}

// readBounded reads a file. It returns an error if the file is larger than the given number of bytes. Code:
// integrity_check_failed.
func readBounded(path string, most int64) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && int64(len(raw)) > most {
		err = model.Refuse(model.CodeIntegrity, "%s has more than %d MiB", filepath.Base(path), most>>20)
	}
	return raw, err
}

// write writes the manifest and its sum next to the data, and returns the sum. Code: invalid (the manifest is too
// large).
func (a *archive) write(dir string) (string, error) {
	raw, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return "", err
	}
	if raw = append(raw, '\n'); len(raw) > maxArchiveManifest {
		return "",
			model.Refuse(model.CodeInvalid,
				"the volumes are too large for a backup: its list of sums would have more than %d MiB", maxArchiveManifest>>20)
	}
	sum := sha256.Sum256(raw)
	text := hex.EncodeToString(sum[:])
	if err := durable.ReplaceBytes(filepath.Join(dir, archiveManifest), raw, 0o600); err != nil {
		return "", err
	}
	return text, durable.ReplaceBytes(filepath.Join(dir, archiveSum), []byte(text+"  "+archiveManifest+"\n"), 0o600)
}

// checking reads an archive's data and returns only bytes whose chunk has the right sum.
type checking struct {
	from *skipping
	a    *archive
	each func(done int64) error // called after each chunk; an error stops the reading
	next int                    // number of the chunk to read next
	buf  []byte                 // for the content of the current chunk, unless that is a hole
	have []byte                 // the part of the current chunk that Read has not returned yet
	done int64                  // bytes of all chunks read so far
	data int64                  // bytes of done in chunks that are not holes

	lend bool // Read may skip writing zeros into its buffer
	lent int  // number of bytes that Read did not write because they are zeros
}

// Read implements io.Reader.
func (c *checking) Read(p []byte) (int, error) {
	if len(c.have) == 0 {
		if err := c.load(); err != nil {
			return 0, err
		}
	}
	n := min(len(p), len(c.have))
	if c.lend && ofZeroBytes(c.have) {
		c.lent += n
	} else {
		copy(p, c.have)
	}
	c.have = c.have[n:]
	return n, nil
}

// lendZeros reads once from content, which reads from c, and returns the bytes. They are in buf or, to save copying
// zeros, in a slice of zeroBytes. If one read of content reads c more than once, lendZeros may fail. Code:
// integrity_check_failed.
func (c *checking) lendZeros(content io.Reader, buf []byte) ([]byte, error) {
	c.lend, c.lent = true, 0
	n, err := content.Read(buf)
	c.lend = false
	switch c.lent {
	case 0:
		return buf[:n], err
	case n:
		return zeroBytes()[:n], err
	}
	return nil,
		model.Refuse(model.CodeIntegrity, "the data of backup %s is written in another way than outspan does", c.a.ID)
}

func (c *checking) load() error {
	if c.next == len(c.a.Sums) {
		return io.EOF
	}
	if c.buf == nil {
		c.buf = make([]byte, chunkBytes)
	}
	length := min(chunkBytes, c.a.Bytes-int64(c.next)*chunkBytes)
	chunk := c.buf[:length]
	if c.from.skip(length) {
		chunk = zeroBytes()[:length]
	} else if _, err := io.ReadFull(c.from, chunk); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return model.Refuse(model.CodeIntegrity, "the data of backup %s ends within chunk %d of %d",
				c.a.ID, c.next, len(c.a.Sums))
		}
		return err
	}
	if !strings.EqualFold(sumText(chunk), c.a.Sums[c.next]) {
		return model.Refuse(model.CodeIntegrity, "chunk %d of %d of backup %s is damaged (bytes %d to %d of %s)",
			c.next, len(c.a.Sums), c.a.ID,
			int64(c.next)*chunkBytes, int64(c.next)*chunkBytes+length-1, archiveData)
	}
	c.have, c.next, c.done = chunk, c.next+1, c.done+length
	if !ofZeroBytes(chunk) {
		c.data += length
	}
	return c.each(c.done)
}

// checkData reads all data of an archive once, to check its sums. Code: integrity_check_failed.
func checkData(dir string, a *archive, each func(int64) error) error {
	f, err := os.Open(filepath.Join(dir, archiveData))
	if err != nil {
		return err
	}
	defer f.Close()
	return (&checking{from: &skipping{f: f}, a: a, each: each}).rest()
}

// rest reads all remaining chunks, to check their sums.
func (c *checking) rest() error {
	for {
		switch err := c.load(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
