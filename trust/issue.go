package trust

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/pki"
)

// Bounds of the program that makes certificates.
const (
	issueTime   = 10 * time.Second // for one certificate, including the wait for a place; less than askTime
	maxIssuing  = 4                // programs that run at once
	maxIssued   = 64 << 10         // bytes of standard output
	maxComplain = 2 << 10          // bytes of standard error that are kept
)

// issuer runs the program of tls { issue }, which makes certificates by a CA that outspan does not have. It is safe for
// concurrent use.
type issuer struct {
	path    string // absolute
	cluster string
	limit   time.Duration
	places  chan struct{} // has an element for each program that runs
}

func newIssuer(path, cluster string) *issuer {
	return &issuer{path: path, cluster: cluster, limit: issueTime, places: make(chan struct{}, maxIssuing)}
}

// issue has the program make a certificate for a request (der), of a newcomer at an address. It blocks for at most the
// limit and a second. The program gets the request as PEM on standard input, and an environment of PATH and of what the
// certificate must have. It prints the certificate and any CAs between it and a root. Everything that it has started
// in its process group ends with it if it takes too long. Codes: busy; issue_failed, whose message has what the program
// wrote to standard error.
func (i *issuer) issue(ctx context.Context, r pki.Request, der []byte, address string,
	roots []*x509.Certificate) ([]*x509.Certificate, error) {
	ctx, cancel := context.WithTimeout(ctx, i.limit)
	defer cancel()
	select {
	case i.places <- struct{}{}:
		defer func() { <-i.places }()
	case <-ctx.Done():
		return nil, model.Refuse(model.CodeBusy, "too many newcomers wait for certificates").
			WithHint("try again in a moment")
	}
	printed, err := i.run(ctx, r, der, address)
	if err != nil {
		return nil, err
	}
	chain, err := parseChain(printed)
	if err != nil {
		return nil, i.failed("printed no certificate: "+err.Error(), "")
	}
	if err := pki.Granted(chain, roots, r, i.cluster, time.Now()); err != nil {
		return nil, i.failed("made a certificate that is of no use: "+model.Reason(err), "")
	}
	return chain, nil
}

func (i *issuer) run(ctx context.Context, r pki.Request, der []byte, address string) ([]byte, error) {
	running, end := context.WithCancel(ctx)
	defer end()
	out, complaint := &limited{most: maxIssued, full: end}, &limited{most: maxComplain, full: func() {}}
	cmd := exec.CommandContext(running, i.path)
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = "/", out, complaint, time.Second
	cmd.Stdin = bytes.NewReader(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}))
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "OUTSPAN_CLUSTER=" + i.cluster, "OUTSPAN_ROLE=" + string(r.Role),
		"OUTSPAN_NAME=" + r.Name, "OUTSPAN_ADDRESS=" + address,
		"OUTSPAN_SUBJECT_ALT_NAME=" + strings.Join(r.SubjectAltNames(i.cluster), ","),
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	err := cmd.Run()
	switch {
	case out.over:
		return nil, i.failed(fmt.Sprintf("printed more than %d bytes", maxIssued), complaint.kept.String())
	case ctx.Err() != nil:
		return nil, i.failed("did not end in time", complaint.kept.String())
	case err != nil:
		return nil, i.failed("failed: "+err.Error(), complaint.kept.String())
	}
	return out.kept.Bytes(), nil
}

func (i *issuer) failed(what, complaint string) *model.Error {
	if complaint = strings.TrimSpace(complaint); complaint != "" {
		what += ", and wrote: " + complaint
	}
	return model.Refuse(model.CodeIssueFailed, "the program %s %s", i.path, what).
		WithHint("run it by hand on that server; docs/join.md says what it gets and what it has to print")
}

// parseChain reads certificates in PEM. Text between them, as openssl prints it, is ignored.
func parseChain(text []byte) ([]*x509.Certificate, error) {
	var chain []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("there is a block %q", model.Clip(block.Type))
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("a certificate is damaged: %s", model.Clip(err.Error()))
		}
		chain = append(chain, cert)
	}
	if len(chain) == 0 {
		return nil, errors.New("there is no PEM block CERTIFICATE")
	}
	return chain, nil
}

// limited keeps the first bytes that are written to it, drops the rest, and calls full when there is a rest.
type limited struct {
	kept bytes.Buffer // a field, because the method ReadFrom of an embedded one would know no limit
	most int
	full func()
	over bool
}

// Write implements io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	room := l.most - l.kept.Len()
	if len(p) <= room {
		return l.kept.Write(p)
	}
	l.over = true
	l.full()
	l.kept.Write(p[:room])
	return len(p), nil
}
