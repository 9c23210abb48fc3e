package transfer

import (
	"context"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

const (
	headerSum  = "Outspan-Chunk-Sum"  // the SHA-256 of a chunk, in hex
	headerHole = "Outspan-Chunk-Hole" // number of chunks of zeros from the requested one on; if set, the body is empty
)

const (
	// serveStall limits the time for sending one piece of an answer, of at most sendPiece bytes. After this time the
	// request is aborted. A whole chunk may take longer: its reader gives up after chunkTimeout.
	serveStall = 30 * time.Second
	sendPiece  = 256 << 10
)

// source is a slot's volumes while other agents may read them. During this time nothing writes to the volumes.
type source struct {
	token string
	root  *os.Root

	mu       sync.Mutex // held by sendSums, which serves one reader at a time; it protects no field
	manifest manifest
	content  *content
}

// serve lets other agents read the volumes until ctx ends. Codes: those of mustBeHere and scan.
func (t *task) serve(ctx context.Context) error {
	if err := t.mustBeHere(); err != nil {
		return err
	}
	root, err := os.OpenRoot(t.slotDir())
	if err != nil {
		return asCode(err, "open the volumes")
	}
	defer func() { _ = root.Close() }() // an error loses nothing, since nothing was written
	s := &source{token: t.Token, root: root}
	if s.manifest, err = newManifest(root, t.Names); err != nil {
		return err
	}
	s.manifest.OwnUID = t.userOf(s.manifest.Entries)
	if err = s.manifest.write(io.Discard); err != nil {
		return asCode(err, "list the volumes")
	}
	s.content = newContent(root, s.manifest.Entries)
	t.m.serving(t.ID, s)
	defer t.m.serving(t.ID, nil)
	t.report(model.SideServing, 0, s.content.total(), "")
	<-ctx.Done()
	return nil
}

func (m *Mover) serving(id model.TransferID, s *source) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s == nil {
		delete(m.served, id)
		return
	}
	m.served[id] = s
}

// Handler answers other agents. The caller must have checked their certificate and role. The requests, each with the
// transfer's token as bearer, are
//
//	GET /v1/agent/transfer/{id}/manifest    the list of files
//	GET /v1/agent/transfer/{id}/chunk?n=N   chunk N, with its sum in Outspan-Chunk-Sum; for a hole an empty body,
//	                                        and the number of the hole's chunks in Outspan-Chunk-Hole
//	GET /v1/agent/transfer/{id}/sums        the sums of all chunks, read from the disk again
//
// Codes: not_found (the transfer is not served now), forbidden, invalid (there is no such chunk), and those of reading
// a file.
func (m *Mover) Handler() http.Handler {
	mux := http.NewServeMux()
	for what, answer := range map[string]func(*source, http.ResponseWriter,
		*http.Request) error{"manifest": (*source).sendManifest, "chunk": (*source).sendChunk, "sums": (*source).sendSums} {
		mux.HandleFunc("GET "+transport.PathAgentTransfer+"{id}/"+what, func(w http.ResponseWriter, r *http.Request) {
			s, err := m.authorised(r)
			if err == nil {
				err = answer(s, w, r)
			}
			if err != nil {
				problem(w, err)
			}
		})
	}
	return mux
}

func (m *Mover) authorised(r *http.Request) (*source, error) {
	m.mu.Lock()
	s := m.served[model.TransferID(r.PathValue("id"))]
	m.mu.Unlock()
	if s == nil {
		return nil, model.Refuse(model.CodeNotFound, "that transfer is not handed out here now")
	}
	token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if s.token == "" || subtle.ConstantTimeCompare([]byte(token), []byte(s.token)) != 1 {
		return nil, model.Refuse(model.CodeForbidden, "the token is not that of the transfer")
	}
	return s, nil
}

func (s *source) sendManifest(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", transport.ContentTypeCBOR)
	if s.manifest.write(sending{w}) != nil {
		panic(http.ErrAbortHandler) // so that the reader does not take the part for the whole list
	}
	return nil
}

// sending is an io.Writer that fails if a piece of a Write takes longer than serveStall.
type sending struct{ w http.ResponseWriter }

// Write implements io.Writer.
func (s sending) Write(data []byte) (int, error) {
	if !send(s.w, data) {
		return 0, errReaderGone
	}
	return len(data), nil
}

var errReaderGone = errors.New("the reader takes nothing")

func (s *source) sendChunk(w http.ResponseWriter, r *http.Request) error {
	n, err := strconv.Atoi(r.URL.Query().Get("n"))
	if err != nil || n < 0 || n >= s.content.chunks() {
		return model.Refuse(model.CodeInvalid, "there is no such chunk")
	}
	if holes := s.content.holes(n); holes > 0 {
		w.Header().Set(headerSum, zeroText())
		w.Header().Set(headerHole, strconv.Itoa(holes))
		return nil
	}
	data, err := s.content.read(n, make([]byte, chunkBytes))
	if err != nil {
		return err
	}
	sum := sumOf(data)
	w.Header().Set(headerSum, hex.EncodeToString(sum[:]))
	w.Header().Set("Content-Type", "application/octet-stream")
	send(w, data)
	return nil
}

// sumsAtOnce is how many bytes of sums sendSums collects before it sends them, while it reads a hole. Other sums are
// sent one by one, since each takes a while.
const sumsAtOnce = 64 << 10

// sendSums reads all chunks from the disk again and sends their sums. It serves one reader at a time, since each reader
// keeps the disk fully busy.
func (s *source) sendSums(w http.ResponseWriter, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/octet-stream")
	var sums []byte
	for in, n := s.content.reading(), s.content.chunks(); in.next < n; {
		sum, err := in.sum()
		sums = append(sums, sum[:]...)
		if err == nil && in.holes > 0 && len(sums) < sumsAtOnce {
			continue
		}
		if err != nil || r.Context().Err() != nil || !send(w, sums) || http.NewResponseController(w).Flush() != nil {
			panic(http.ErrAbortHandler) // so that the reader does not take the part for all sums
		}
		sums = sums[:0]
	}
	return nil
}

// send writes data to the reader in pieces. It returns false if this fails, or if one piece takes longer than
// serveStall.
func send(w http.ResponseWriter, data []byte) bool {
	control := http.NewResponseController(w)
	for piece := range slices.Chunk(data, sendPiece) {
		err := control.SetWriteDeadline(time.Now().Add(serveStall))
		if err != nil && !errors.Is(err, http.ErrNotSupported) {
			return false
		}
		if _, err := w.Write(piece); err != nil {
			return false
		}
	}
	return true
}

func problem(w http.ResponseWriter, err error) {
	p := api.NewProblem(err)
	w.Header().Set("Content-Type", api.ContentTypeProblem)
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p) // an error means that the reader has gone
}
