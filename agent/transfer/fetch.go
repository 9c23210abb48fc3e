package transfer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/internal/durable"
	"github.com/outspan/outspan/internal/erase"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	chunkTimeout = time.Minute
	sumsTimeout  = 24 * time.Hour // both sides read everything; without progress the servers give the transfer up sooner
	chunkTries   = 3              // for a chunk that arrives damaged
)

// fetch copies the volumes from another agent into a staging directory and verifies the copy. It continues the copy of
// an interrupted try. If the copy is verified already, fetch only reports it.
func (t *task) fetch(ctx context.Context) error {
	if sum, ok := t.verified(); ok {
		total := t.stagedBytes()
		t.report(model.SideVerified, total, total, sum)
		return nil
	}
	if err := t.checkUser(); err != nil {
		return err
	}
	t.synced = 0
	c, err := t.openCopy(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if err := c.resume(ctx); err != nil {
		return err
	}
	for c.done() < c.content.chunks() {
		if err := c.take(ctx, c.done()); err != nil {
			return err
		}
		done := int64(c.done()) * chunkBytes
		if err := t.settle(done); err != nil {
			return err
		}
		t.progress(model.SideCopying, min(done, c.content.total()), c.content.total())
	}
	t.report(model.SideVerifying, 0, c.content.total(), "")
	if err := c.verify(ctx); err != nil {
		return err
	}
	return t.finish(c.root, &c.manifest, c.sums)
}

// verified returns the sum of a complete copy, or false if there is none.
func (t *task) verified() (string, bool) {
	b, err := os.ReadFile(t.staging(t.ID, "verified"))
	return string(bytes.TrimSpace(b)), err == nil && len(b) > 0
}

func (t *task) stagedBytes() int64 {
	f, err := os.Open(t.staging(t.ID, "manifest"))
	if err != nil {
		return 0
	}
	defer f.Close()
	m, err := readManifest(f, t.Names, maxArchiveList) // its list may come from a backup
	if err != nil {
		return 0
	}
	return newContent(nil, m.Entries).total()
}

// finish sets the owners and modes of a complete copy, syncs the copy to the disk, marks it as verified, and reports
// it.
func (t *task) finish(root *os.Root, m *manifest, sums []byte) error {
	if err := t.readdress(m); err != nil {
		return err
	}
	if err := dress(root, m.Entries); err != nil {
		return err
	}
	err := t.sync()
	whole := sha256.New()
	if err == nil {
		err = copyFile(whole, t.staging(t.ID, "manifest"))
	}
	whole.Write(sums)
	sum := hex.EncodeToString(whole.Sum(nil))
	if err == nil {
		err = durable.ReplaceBytes(t.staging(t.ID, "verified"), []byte(sum+"\n"), 0o600)
	}
	if err != nil {
		return asCode(err, "put the copy on the disk")
	}
	total := newContent(root, m.Entries).total()
	t.report(model.SideVerified, total, total, sum)
	return nil
}

// syncEvery is how many bytes are copied between two syncs. It is small enough that the servers don't take a transfer
// for stalled during a sync.
const syncEvery = 1 << 30

// settle syncs the copy to the disk if done has grown by syncEvery since the last sync.
func (t *task) settle(done int64) error {
	if done-t.synced < syncEvery {
		return nil
	}
	t.synced = done
	return t.sync()
}

func (t *task) sync() error {
	dir, err := os.Open(t.staging(t.ID))
	if err != nil {
		return asCode(err, "open the copy")
	}
	return asCode(errors.Join(unix.Syncfs(int(dir.Fd())), dir.Close()), "put the copy on the disk")
}

type copying struct {
	t        *task
	manifest manifest
	listed   sum // the sum of the source's list of files
	root     *os.Root
	content  *content
	log      *os.File // the file .transfer/ID/sums
	sums     []byte   // of the chunks that have arrived
}

// openCopy gets the source's list of files and lays the files out in the staging directory. It removes an earlier copy
// that was made from a different list.
func (t *task) openCopy(ctx context.Context) (*copying, error) {
	list, err := t.bringList(ctx)
	if err != nil {
		return nil, err
	}
	defer list.Close()
	c := &copying{t: t, listed: list.sum}
	if c.manifest, err = readManifest(list, t.Names, maxList); err != nil {
		return nil, err
	}
	old := sha256.New()
	if err := copyFile(old, t.staging(t.ID, "manifest")); err != nil || !bytes.Equal(old.Sum(nil), c.listed[:]) {
		if err := t.beginStaging(list, usedBytes(c.manifest.Entries)); err != nil {
			return nil, err
		}
	}
	if c.root, err = os.OpenRoot(t.staging(t.ID, "tree")); err != nil {
		return nil, asCode(err, "open the copy")
	}
	c.content = newContent(c.root, c.manifest.Entries)
	if err = layOut(c.root, c.manifest.Entries); err == nil {
		c.log, err = os.OpenFile(t.staging(t.ID, "sums"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	}
	if err == nil {
		c.sums, err = io.ReadAll(c.log)
	}
	if err != nil {
		c.close()
		return nil, asCode(err, "begin the copy")
	}
	return c, nil
}

// beginStaging removes an earlier copy and makes an empty staging directory, if the disk has room for total bytes. If
// list is not nil, it is stored as the manifest. Code: no_capacity_disk.
func (t *task) beginStaging(list *listFile, total int64) error {
	if err := erase.Tree(t.staging(t.ID)); err != nil {
		return asCode(err, "remove an earlier copy")
	}
	if err := os.MkdirAll(t.m.cfg.Volumes, 0o711); err != nil {
		return asCode(err, "make the directory of volumes")
	}
	if err := t.roomFor(total); err != nil {
		return err
	}
	if err := os.MkdirAll(t.staging(t.ID, "tree"), 0o700); err != nil {
		return asCode(err, "make a place for the copy")
	}
	if list == nil {
		return nil
	}
	return asCode(durable.Replace(t.staging(t.ID, "manifest"), list.copyTo, 0o600), "note what is copied")
}

// usedBytes returns how much disk space a copy needs. The holes of the source need none.
func usedBytes(entries []entry) (n int64) {
	for i := range entries {
		n += entries[i].Used
	}
	return n
}

// roomFor returns an error if the disk has no room for a copy of total bytes. Code: no_capacity_disk.
func (t *task) roomFor(total int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(t.m.cfg.Volumes, &st); err != nil {
		return asCode(err, "look at the room on the disk")
	}
	if free := int64(st.Bavail) * st.Bsize; free < total {
		return model.Refuse(model.CodeNoDisk, "the disk has %d MiB left, the copy needs %d MiB", free>>20, total>>20)
	}
	return nil
}

func (c *copying) close() {
	if c.root != nil {
		_ = c.root.Close() // a directory handle; the files are synced separately
	}
	if c.log != nil {
		_ = c.log.Close() // the sums are checked against the copy before they are used again
	}
}

func (c *copying) done() int { return len(c.sums) / sha256.Size }

// resume keeps the chunks of an earlier try that come before the first chunk whose bytes on the disk don't match its
// sum.
func (c *copying) resume(ctx context.Context) error {
	c.sums = c.sums[:min(len(c.sums)/sha256.Size, c.content.chunks())*sha256.Size]
	good, in := 0, c.content.reading()
	for ; good < c.done() && ctx.Err() == nil; good++ {
		sum, err := in.sum()
		if err != nil || !bytes.Equal(sum[:], c.sums[good*sha256.Size:][:sha256.Size]) {
			break
		}
		c.t.progress(model.SideCopying, int64(good+1)*chunkBytes, c.content.total())
	}
	if ctx.Err() != nil {
		return ctx.Err() // the sums are not cut, because unchecked chunks may be good
	}
	if good > 0 {
		c.t.log.Info("an earlier copy goes on", "chunks", good, "of", c.content.chunks())
	}
	c.sums = c.sums[:good*sha256.Size]
	c.t.report(model.SideCopying, int64(good)*chunkBytes, c.content.total(), "")
	return asCode(c.log.Truncate(int64(len(c.sums))), "cut the list of sums")
}

// take copies chunk i, or all chunks of the hole that begins at chunk i. A chunk that arrives damaged is requested
// again. After chunkTries tries, take returns an error.
func (c *copying) take(ctx context.Context, i int) error {
	for try := 1; ; try++ {
		data, head, err := c.t.get(ctx, fmt.Sprintf("chunk?n=%d", i), chunkTimeout, chunkBytes)
		if err != nil {
			return err
		}
		sum, n, fits := sumOf(data), 1, int64(len(data)) == c.content.length(i)
		write := func() error { return c.content.write(i, data) }
		if text := head.Get(headerHole); text != "" {
			n, err = strconv.Atoi(text)
			sum, fits = zeroChunk(), err == nil && n > 0 && n <= holeChunks && int64(i+n)*chunkBytes <= c.content.total()
			write = func() error { return c.content.clear(i, n, ctx.Err) }
		}
		if fits && hex.EncodeToString(sum[:]) == head.Get(headerSum) {
			if err := write(); err != nil {
				return err
			}
			sums := bytes.Repeat(sum[:], n)
			c.sums = append(c.sums, sums...)
			_, err := c.log.Write(sums)
			return asCode(err, "note a sum")
		}
		c.t.log.Warn("chunk arrived damaged", "chunk", i, "try", try)
		if try == chunkTries {
			return c.damaged(i, "arrived damaged "+fmt.Sprint(try)+" times")
		}
	}
}

func (c *copying) damaged(i int, how string) error {
	return model.Refuse(model.CodeIntegrity, "chunk %d (%s) %s", i, describe(c.manifest.Entries, int64(i)*chunkBytes), how)
}

// verify reads the copy back from the disk, makes the source read its volumes again, and compares the sums. It returns
// an error if a sum differs, or if the source's list of files has changed.
func (c *copying) verify(ctx context.Context) error {
	again, err := c.t.readList(ctx, io.Discard)
	if err != nil {
		return err
	}
	if again != c.listed {
		return model.Refuse(model.CodeIntegrity, "the volumes changed at the source while they were copied")
	}
	ctx, cancel := context.WithTimeout(ctx, sumsTimeout)
	defer cancel()
	resp, err := c.t.open(ctx, "sums")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	c.sums = c.sums[:0]
	from, in := bufio.NewReaderSize(resp.Body, sumsAtOnce), c.content.reading()
	for i := range c.content.chunks() { // both sides read at the same time
		var theirs sum
		if _, err := io.ReadFull(from, theirs[:]); err != nil {
			return c.t.brokeOff(err)
		}
		ours, err := in.sum()
		if err != nil {
			return err
		}
		if ours != theirs {
			return c.damaged(i, "differs between the source and the copy")
		}
		c.sums = append(c.sums, theirs[:]...)
		c.t.progress(model.SideVerifying, min(int64(i+1)*chunkBytes, c.content.total()), c.content.total())
	}
	if n, err := io.Copy(io.Discard, io.LimitReader(from, 1)); n > 0 || err != nil {
		return model.Refuse(model.CodeIntegrity, "the source has more chunks than the %d of the copy", c.content.chunks())
	}
	return nil
}

// get sends a request to the source and returns the whole answer. limit is the request's timeout. most is the greatest
// size of an answer in bytes.
func (t *task) get(ctx context.Context, what string, limit time.Duration, most int64) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	resp, err := t.open(ctx, what)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("it has more than %d bytes", most)
	}
	if err != nil {
		return nil, nil, t.brokeOff(err)
	}
	return data, resp.Header, nil
}

func (t *task) brokeOff(err error) error {
	return again(model.Refuse(model.CodeAgentUnreachable, "the answer of the agent at %s broke off: %v", t.Peer, err))
}

// open sends a request to the source. The caller closes the answer's body. Another try may help after an error (see
// again), unless the address is not usable, or the answer has the status 400 or 409.
func (t *task) open(ctx context.Context, what string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(reach.ExpectPeer(ctx, t.PeerName), http.MethodGet,
		"https://"+t.Peer+transport.PathAgentTransfer+string(t.ID)+"/"+what, http.NoBody)
	if err != nil {
		return nil, model.Refuse(model.CodeAgentUnreachable, "the address of the source is not usable")
	}
	req.Header.Set("Authorization", "Bearer "+t.Token)
	resp, err := t.m.cfg.Peers.RoundTrip(req)
	if err != nil {
		return nil, again(model.Refuse(model.CodeAgentUnreachable, "the agent at %s does not answer: %v", t.Peer, err))
	}
	if resp.StatusCode == http.StatusOK {
		return resp, nil
	}
	defer resp.Body.Close()
	err = api.ProblemOf(resp)
	if resp.StatusCode == http.StatusConflict || resp.StatusCode == http.StatusBadRequest {
		return nil, err
	}
	return nil, again(err)
}
