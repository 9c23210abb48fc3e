package image

import (
	"errors"
	"net/url"
	"regexp"
	"strings"
)

// resolving is what containerd puts before the error of a registry: the name of the image, once or twice.
var resolving = regexp.MustCompile(`^(?:failed to resolve reference "[^"]*": )?(?:[^ ]+[:@][^ ]+: )?`)

// words returns what a registry, or the connection to it, said. It leaves out the name of the image, which callers add,
// and the path of a request.
func words(err error) string {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		if at, bad := url.Parse(failed.URL); bad == nil {
			return at.Scheme + "://" + at.Host + ": " + failed.Err.Error()
		}
	}
	text := err.Error()
	if rest := text[len(resolving.FindString(text)):]; rest != "" {
		return rest
	}
	return text
}

// shortDigest cuts a digest in a text for people to the 12 digits by which tools show it.
func shortDigest(text, dgst string) string {
	const shown = len("sha256:") + 12
	if len(dgst) <= shown {
		return text
	}
	return strings.ReplaceAll(text, dgst, dgst[:shown])
}
