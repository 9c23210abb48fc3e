package ctrd

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
)

// Remote is a registry that runs as a process of its own.
type Remote struct {
	URL string // such as http://127.0.0.1:5000
	// User and Password, if set, are sent with each request.
	User, Password string
}

// Push uploads an image and tags it. Uploading it again is fine. It blocks until the registry has everything.
func (r Remote) Push(ctx context.Context, name, tag string, i Image) error {
	var manifests []string // what a manifest names must be there before it
	for _, d := range slices.Sorted(maps.Keys(i.blobs)) {
		switch {
		case i.types[d] != "" && d != i.Digest:
			manifests = append(manifests, d)
		case i.types[d] == "":
			if err := r.pushBlob(ctx, name, d, i.blobs[d]); err != nil {
				return err
			}
		}
	}
	for _, d := range append(manifests, i.Digest) {
		if err := r.pushManifest(ctx, name, d, i.types[d], i.blobs[d]); err != nil {
			return err
		}
	}
	return r.pushManifest(ctx, name, tag, typeIndex, i.blobs[i.Digest])
}

// Forget deletes an image's index from the registry, by its digest and with its tags. Its layers stay.
func (r Remote) Forget(ctx context.Context, name, digest string) error {
	_, err := r.call(ctx, http.MethodDelete, r.URL+"/v2/"+name+"/manifests/"+digest, "", nil, http.StatusAccepted)
	return err
}

// Ready returns an error unless the registry answers.
func (r Remote) Ready(ctx context.Context) error {
	_, err := r.call(ctx, http.MethodGet, r.URL+"/v2/", "", nil, http.StatusOK)
	return err
}

func (r Remote) pushBlob(ctx context.Context, name, digest string, body []byte) error {
	header, err := r.call(ctx, http.MethodPost, r.URL+"/v2/"+name+"/blobs/uploads/", "", nil, http.StatusAccepted)
	if err != nil {
		return err
	}
	base, err := url.Parse(r.URL)
	if err != nil {
		return err
	}
	at, err := base.Parse(header.Get("Location"))
	if err != nil {
		return err
	}
	query := at.Query()
	query.Set("digest", digest)
	at.RawQuery = query.Encode()
	_, err = r.call(ctx, http.MethodPut, at.String(), "application/octet-stream", body, http.StatusCreated)
	return err
}

func (r Remote) pushManifest(ctx context.Context, name, as, mediaType string, body []byte) error {
	_, err := r.call(ctx, http.MethodPut, r.URL+"/v2/"+name+"/manifests/"+as, mediaType, body, http.StatusCreated)
	return err
}

// call sends a request and returns the header of the answer, which must have the given status.
func (r Remote) call(ctx context.Context, method, at, mediaType string, body []byte, want int) (http.Header, error) {
	req, err := http.NewRequestWithContext(ctx, method, at, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if r.User != "" {
		req.SetBasicAuth(r.User, r.Password)
	}
	req.Header.Set("Content-Type", cmp.Or(mediaType, "application/octet-stream"))
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	said, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	if err == nil && answer.StatusCode != want {
		err = fmt.Errorf("%s %s: %s: %s", method, at, answer.Status, said)
	}
	return answer.Header, err
}
