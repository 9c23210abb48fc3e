package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
)

//go:embed page/*.html page/*.css page/*.svg page/*.js page/vendor/*.js
var embedded embed.FS

// kinds has the media types of the files of the page.
var kinds = map[string]string{
	".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml",
}

// assets are the files of the page. Their addresses begin with /ui/HASH/, where HASH changes whenever a file changes,
// so that browsers keep them for ever.
type assets struct {
	index []byte            // page/index.html, with the addresses of the files
	files map[string][]byte // by address
}

func loadAssets() (assets, error) {
	a := assets{files: map[string][]byte{}}
	var names []string // in the order of the walk, which is that of the names
	sum := sha256.New()
	err := fs.WalkDir(embedded, "page", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := embedded.ReadFile(name)
		names = append(names, name)
		fmt.Fprintf(sum, "%s %d\n%s", name, len(text), text)
		return err
	})
	if err != nil {
		return a, fmt.Errorf("read the files of the page: %w", err)
	}
	base := "/ui/" + hex.EncodeToString(sum.Sum(nil)[:8]) + "/"
	var preload strings.Builder
	for _, name := range names {
		text, err := embedded.ReadFile(name)
		if err != nil {
			return a, fmt.Errorf("read the files of the page: %w", err)
		}
		if path.Ext(name) == ".html" {
			continue
		}
		address := base + strings.TrimPrefix(name, "page/")
		a.files[address] = text
		if path.Ext(name) == ".js" {
			fmt.Fprintf(&preload, "<link rel=\"modulepreload\" href=\"%s\">\n", address)
		}
	}
	html, err := embedded.ReadFile("page/index.html")
	if err != nil {
		return a, fmt.Errorf("read the files of the page: %w", err)
	}
	a.index = bytes.ReplaceAll(html, []byte("<!-- modulepreload -->\n"), []byte(preload.String()))
	a.index = bytes.ReplaceAll(a.index, []byte("{base}"), []byte(base))
	return a, nil
}

// serve answers with a file of the page.
func (a assets) serve(w http.ResponseWriter, r *http.Request) {
	if !slices.Contains([]string{http.MethodGet, http.MethodHead}, r.Method) {
		w.Header().Set("Allow", "GET, HEAD")
		w.WriteHeader(http.StatusMethodNotAllowed)
		return
	}
	if r.URL.Path == "/" {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(a.index)
		return
	}
	text, ok := a.files[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", kinds[path.Ext(r.URL.Path)])
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(text)
}
