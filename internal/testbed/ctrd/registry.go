package ctrd

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

// Registry serves images by the part of the registry API that pulls use. Safe for concurrent use.
type Registry struct {
	// User and Password, if set, are asked for.
	User, Password string

	mu    sync.Mutex
	tags  map[string]Image // by NAME:TAG
	down  bool
	pause time.Duration
}

// Trouble makes the registry drop each request, or answer it only after a pause. The zero values end that for requests
// that come afterwards.
func (r *Registry) Trouble(down bool, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down, r.pause = down, pause
}

// Push makes an image known as NAME:TAG.
func (r *Registry) Push(tag string, i Image) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.tags == nil {
		r.tags = map[string]Image{}
	}
	r.tags[tag] = i
}

// ServeHTTP implements http.Handler.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	down, pause := r.down, r.pause
	r.mu.Unlock()
	if down {
		panic(http.ErrAbortHandler) // the server closes the connection
	}
	select {
	case <-time.After(pause):
	case <-req.Context().Done():
		return
	}
	if user, password, _ := req.BasicAuth(); r.User != "" && (user != r.User || password != r.Password) {
		w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	path := strings.TrimPrefix(req.URL.Path, "/v2/")
	body, mediaType, digest, ok := r.find(path)
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"errors":[{"code":"MANIFEST_UNKNOWN","message":"this registry has no such image"}]}`)
		return
	}
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Docker-Content-Digest", digest)
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if req.Method != http.MethodHead {
		_, _ = w.Write(body)
	}
}

// find finds NAME/manifests/TAG, NAME/manifests/DIGEST or NAME/blobs/DIGEST.
func (r *Registry) find(path string) (body []byte, mediaType, digest string, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for tag, i := range r.tags {
		name, version, _ := strings.Cut(tag, ":")
		rest, mine := strings.CutPrefix(path, name+"/")
		if !mine {
			continue
		}
		kind, what, _ := strings.Cut(rest, "/")
		if kind == "manifests" && what == version {
			what = i.Digest
		}
		if b, has := i.blobs[what]; has {
			mediaType = "application/octet-stream"
			if kind == "manifests" {
				mediaType = i.types[what]
			}
			return b, mediaType, what, true
		}
	}
	return nil, "", "", false
}
