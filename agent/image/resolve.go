package image

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/containerd/log"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/outspan/outspan/model"
)

// Resolved is what a registry says about a name.
type Resolved struct {
	Ref       string // whole name with the digest, for Pull
	Digest    string // of the index or, if the image is for one platform only, of its manifest
	Platforms []string
}

// Resolve asks the registry of an image, or its mirrors, for the digest behind a name. A name that has a digest gives
// the same digest, if the registry has it. It does not use containerd. Codes: CodeInvalidName,
// CodeUnresolved, CodeUnreachable.
func (s *Store) Resolve(ctx context.Context, ref string) (Resolved, error) {
	return s.cfg.Resolve(ctx, ref)
}

// Resolve is Store.Resolve without a connection to containerd.
func (c Config) Resolve(ctx context.Context, ref string) (Resolved, error) {
	named, err := parse(ref)
	if err != nil {
		return Resolved{}, err
	}
	refuse := func(err error) error {
		code := CodeUnresolved
		if unreachable(err) {
			code = CodeUnreachable
		}
		return model.Refuse(code, "%s", words(err)).WithHint("%s", c.adviseOn(named, err))
	}
	resolver := c.resolver(ctx)
	name, found, err := resolver.Resolve(ctx, named.String())
	if err != nil {
		return Resolved{}, refuse(err)
	}
	fetcher, err := resolver.Fetcher(ctx, name)
	if err != nil {
		return Resolved{}, refuse(err)
	}
	list, err := platformsOf(ctx, remoteContent{fetcher}, found)
	if err != nil {
		return Resolved{}, refuse(err)
	}
	repository, _, _ := strings.Cut(named.String(), "@")
	if at := strings.LastIndexByte(repository, ':'); at > strings.LastIndexByte(repository, '/') {
		repository = repository[:at]
	}
	d := found.Digest.String()
	return Resolved{Ref: repository + "@" + d, Digest: d, Platforms: list}, nil
}

func (s *Store) resolver(ctx context.Context) remotes.Resolver { return s.cfg.resolver(ctx) }

func (c Config) resolver(ctx context.Context) remotes.Resolver {
	_ = log.SetLevel("panic") // of containerd's own logger, which would write to stderr what the errors say too
	options := config.HostOptions{Credentials: c.credentials}
	if c.CertsDir != "" {
		options.HostDir = config.HostDirFromRoot(c.CertsDir)
	}
	return docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(ctx, options)})
}

// credentials reads docker's config.json. Without an entry for the host, the registry is asked without credentials.
func (c Config) credentials(host string) (user, secret string, err error) {
	if c.DockerConfig == "" {
		return "", "", nil
	}
	b, err := os.ReadFile(c.DockerConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return "", "", nil
	}
	if err != nil {
		return "", "", fmt.Errorf("read credentials of registries: %w", err)
	}
	var file struct {
		Auths map[string]struct {
			Auth          string `json:"auth"`
			Username      string `json:"username"`
			Password      string `json:"password"`
			IdentityToken string `json:"identitytoken"`
		} `json:"auths"`
	}
	if err := json.Unmarshal(b, &file); err != nil {
		return "", "", fmt.Errorf("read credentials of registries in %s: %w", c.DockerConfig, errors.New("it is not JSON"))
	}
	if host == "registry-1.docker.io" {
		host = "index.docker.io"
	}
	for key, a := range file.Auths {
		key = strings.TrimPrefix(strings.TrimPrefix(key, "https://"), "http://")
		if key, _, _ = strings.Cut(key, "/"); key != host {
			continue
		}
		if a.IdentityToken != "" {
			return "", a.IdentityToken, nil
		}
		if a.Auth == "" {
			return a.Username, a.Password, nil
		}
		plain, err := base64.StdEncoding.DecodeString(a.Auth)
		user, secret, ok := strings.Cut(string(plain), ":")
		if err != nil || !ok {
			return "", "", fmt.Errorf("the entry of %s in %s is damaged", host, c.DockerConfig)
		}
		return user, secret, nil
	}
	return "", "", nil
}

// remoteContent reads small objects, such as manifests, from a registry.
type remoteContent struct{ fetcher remotes.Fetcher }

const objectLimit = 8 << 20 // bytes; the largest manifest that is read

// ReaderAt implements content.Provider.
func (r remoteContent) ReaderAt(ctx context.Context, d ocispec.Descriptor) (content.ReaderAt, error) {
	body, err := r.fetcher.Fetch(ctx, d)
	if err != nil {
		return nil, err
	}
	defer body.Close()
	b, err := io.ReadAll(io.LimitReader(body, objectLimit))
	if err != nil {
		return nil, err
	}
	if got := d.Digest.Algorithm().FromBytes(b); got != d.Digest {
		return nil, fmt.Errorf("the registry sent %s instead of %s", got, d.Digest)
	}
	return object{bytes.NewReader(b)}, nil
}

type object struct{ *bytes.Reader }

// Close implements io.Closer.
func (object) Close() error { return nil }
