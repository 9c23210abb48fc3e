package image

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	remoteserrors "github.com/containerd/containerd/v2/core/remotes/errors"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
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

// silence says why containerd does not answer. gRPC's own words are long and have the cause at their end, so silence
// asks the socket.
func (s *Store) silence(err error) string {
	conn, bad := net.DialTimeout("unix", strings.TrimPrefix(s.cfg.Socket, "unix://"), silenceLimit)
	var errno syscall.Errno
	switch {
	case bad == nil:
		_ = conn.Close()
		said := status.Convert(err).Message()
		if errdefs.IsDeadlineExceeded(err) || status.Code(err) == codes.DeadlineExceeded ||
			strings.Contains(said, "error reading server preface") {
			return "it accepts connections and says nothing"
		}
		return "it accepts connections, and ended this one: " + said
	case errors.Is(bad, fs.ErrNotExist):
		return "there is no such socket, so it does not run, or listens elsewhere"
	case errors.Is(bad, syscall.ECONNREFUSED):
		return "it does not run"
	case errors.As(bad, &errno):
		return errno.Error()
	}
	return bad.Error()
}

const silenceLimit = time.Second

// adviseOn returns what helps after an error of the registry of an image, or "" if its words say enough.
func (c Config) adviseOn(named reference.Named, err error) string {
	host, text := reference.Domain(named), err.Error()
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(word string) bool { return strings.Contains(text, word) })
	}
	certs := filepath.Join(cmp.Or(c.CertsDir, "CERTS_DIR"), host, "hosts.toml")
	refused := has("401 Unauthorized", "403 Forbidden", "basic auth credentials", "authorization failed",
		"access to the resource is denied")
	_, byDigest := named.(reference.Canonical)
	switch {
	case has("server gave HTTP response to HTTPS client", "does not look like a TLS handshake"):
		return fmt.Sprintf("without TLS it needs [host.\"http://%s\"] in %s", host, certs)
	case has("certificate signed by unknown authority"):
		return fmt.Sprintf("name its CA in %s: [host.\"https://%s\"] with ca = \"FILE\"", certs, host)
	case refused && c.DockerConfig == "":
		return "check the name; for credentials, name a file in docker_config of the agent's block container"
	case refused:
		return fmt.Sprintf("check the name, and the credentials for %s in %s", host, c.DockerConfig)
	case errdefs.IsNotFound(err) && !byDigest:
		return "check the name and the tag"
	}
	return ""
}

// unreachable reports whether an error means that no registry answered, or that it can't answer now.
func unreachable(err error) bool {
	var bad remoteserrors.ErrUnexpectedStatus
	var name *net.DNSError
	var network *net.OpError
	var slow net.Error
	switch text := err.Error(); {
	case errors.As(err, &bad):
		return bad.StatusCode >= 500 || bad.StatusCode == http.StatusTooManyRequests
	case strings.Contains(text, "HTTP response to HTTPS client"), strings.Contains(text, "x509: "),
		strings.Contains(text, "TLS handshake"):
		return false
	case errors.As(err, &name):
		return !name.IsNotFound // a name that nobody has is misspelt
	case errors.As(err, &network), errors.Is(err, context.DeadlineExceeded):
		return true
	}
	return errors.As(err, &slow) && slow.Timeout()
}

// shortDigest cuts a digest in a text for people to the 12 digits by which tools show it.
func shortDigest(text, dgst string) string {
	const shown = len("sha256:") + 12
	if len(dgst) <= shown {
		return text
	}
	return strings.ReplaceAll(text, dgst, dgst[:shown])
}
