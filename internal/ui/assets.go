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
	"regexp"
	"slices"
	"strings"

	"github.com/outspan/outspan/model"
)

//go:embed page/*.html page/*.css page/*.svg page/*.js page/vendor/*.js page/vendor/*.css
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
		if !strings.HasPrefix(name, "page/vendor/") {
			text = withoutIndent(withoutComments(text))
		}
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

// commentLines are comments that have their lines for themselves.
var commentLines = regexp.MustCompile(`(?m)^[ \t]*(?://.*|/\*(?:[^*]|\*+[^*/])*\*+/[ \t]*)$`)

// withoutComments leaves out the comments of a script or a style sheet that have their lines for themselves: they are a
// seventh of what browsers would load. All other lines keep their numbers. No line of a template in a script may begin
// with // or /*.
func withoutComments(text []byte) []byte {
	return commentLines.ReplaceAllFunc(text, func(comment []byte) []byte {
		return bytes.Repeat([]byte("\n"), bytes.Count(comment, []byte("\n")))
	})
}

// indent is the space that a line begins with.
var indent = regexp.MustCompile(`(?m)^[ \t]+`)

// withoutIndent leaves out the indentation of a script or a style sheet: it is a thirtieth of what browsers would load,
// compressed. A text in backquotes that is more than one line long must not need its indentation: those of html don't.
func withoutIndent(text []byte) []byte { return indent.ReplaceAll(text, nil) }

// Files answers with the files of the page, for a page that people sign in to.
type Files struct{ all assets }

// NewFiles returns the Files. Code: internal.
func NewFiles() (*Files, error) {
	all, err := loadAssets()
	if err != nil {
		return nil, model.Refuse(model.CodeInternal, "%v", err)
	}
	all.index = bytes.ReplaceAll(all.index, []byte(`name="way" content="link"`), []byte(`name="way" content="sign-in"`))
	return &Files{all}, nil
}

// ServeHTTP implements http.Handler.
func (f *Files) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.all.serve(w, r) }

// Index answers with the page itself, whatever the path of the request.
func (f *Files) Index(w http.ResponseWriter, r *http.Request) {
	at := r.Clone(r.Context())
	at.URL.Path = "/"
	f.all.serve(w, at)
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
