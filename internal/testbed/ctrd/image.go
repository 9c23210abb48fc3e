package ctrd

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"runtime"
	"slices"
	"strings"
)

// File is a file of an image. A name that ends with a slash is a directory.
type File struct {
	Name string
	Mode int64
	Body []byte
	Link string // target of a symbolic link; "" = no link
}

// Image is an image for this machine's platform, with one layer.
type Image struct {
	blobs  map[string][]byte // by digest
	types  map[string]string // media type of a manifest, by digest
	Digest string            // of the index
	Layer  string            // digest of the layer
}

// Config is the part of an image's configuration that says what it runs.
type Config struct {
	Entrypoint []string `json:",omitempty"`
	Cmd        []string `json:",omitempty"`
	Env        []string `json:",omitempty"`
	User       string   `json:",omitempty"`
	WorkingDir string   `json:",omitempty"`
	StopSignal string   `json:",omitempty"`
}

const (
	typeIndex    = "application/vnd.oci.image.index.v1+json"
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// NewImage makes an image. Equal arguments give equal digests.
func NewImage(files []File, config Config) (Image, error) {
	i := Image{blobs: map[string][]byte{}, types: map[string]string{}}
	layer, err := layerOf(files)
	if err != nil {
		return i, err
	}
	layerDigest := i.add(layer)
	i.Layer = layerDigest
	configDigest, err := i.addJSON(map[string]any{"architecture": runtime.GOARCH, "os": "linux", "config": config,
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layerDigest}}}, "")
	if err != nil {
		return i, err
	}
	manifest, err := i.addJSON(map[string]any{"schemaVersion": 2, "mediaType": typeManifest,
		"config": i.describe(typeConfig, configDigest),
		"layers": []any{i.describe(typeLayer, layerDigest)}}, typeManifest)
	if err != nil {
		return i, err
	}
	entry := i.describe(typeManifest, manifest)
	entry["platform"] = map[string]string{"architecture": runtime.GOARCH, "os": "linux"}
	i.Digest, err = i.addJSON(map[string]any{"schemaVersion": 2, "mediaType": typeIndex, "manifests": []any{entry}},
		typeIndex)
	return i, err
}

func (i Image) add(b []byte) string {
	sum := sha256.Sum256(b)
	d := "sha256:" + hex.EncodeToString(sum[:])
	i.blobs[d] = b
	return d
}

func (i Image) addJSON(v any, mediaType string) (string, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	d := i.add(b)
	if mediaType != "" {
		i.types[d] = mediaType
	}
	return d, nil
}

func (i Image) describe(mediaType, digest string) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": digest, "size": len(i.blobs[digest])}
}

func layerOf(files []File) ([]byte, error) {
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		h := &tar.Header{Name: f.Name, Mode: f.Mode, Size: int64(len(f.Body)), Typeflag: tar.TypeReg}
		switch {
		case strings.HasSuffix(f.Name, "/"):
			h.Typeflag = tar.TypeDir
		case f.Link != "":
			h.Typeflag, h.Linkname = tar.TypeSymlink, f.Link
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Body); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// Archive returns the image as an OCI archive in which it has a name.
func (i Image) Archive(name string) ([]byte, error) {
	top := i.describe(typeIndex, i.Digest)
	top["annotations"] = map[string]string{"io.containerd.image.name": name}
	index, err := json.Marshal(map[string]any{"schemaVersion": 2, "manifests": []any{top}})
	if err != nil {
		return nil, err
	}
	files := []File{{Name: "oci-layout", Mode: 0o644, Body: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{Name: "index.json", Mode: 0o644, Body: index}}
	for _, d := range slices.Sorted(maps.Keys(i.blobs)) {
		files = append(files, File{Name: "blobs/" + strings.Replace(d, ":", "/", 1), Mode: 0o644, Body: i.blobs[d]})
	}
	return layerOf(files)
}
