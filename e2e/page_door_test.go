package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/outspan/outspan/internal/testbed/chrome"
	"github.com/outspan/outspan/internal/testbed/idp"
)

// pageHost is the name of the page in its certificate. The test's browser finds it at 127.0.0.1.
const pageHost = "page.test"

// makePageCertificate writes a certificate for pageHost and its key. It returns the hash of the key by which a browser
// trusts it.
func (c *cluster) makePageCertificate(t *testing.T) (pin string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	must(err)
	cert := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: pageHost},
		DNSNames: []string{pageHost}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	must(err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	must(err)
	must(os.WriteFile(c.path("ui.pem"), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644))
	must(os.WriteFile(c.path("ui-key.pem"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	must(err)
	sum := sha256.Sum256(public)
	return base64.StdEncoding.EncodeToString(sum[:])
}

// doors is a cluster whose servers serve the page, with a provider, and a browser.
type doors struct {
	*cluster
	provider *idp.Provider
	browser  *chrome.Browser
	address  []string // of the page of each server
	pin      string
}

func startDoors(t *testing.T) *doors {
	t.Helper()
	d := &doors{cluster: newCluster(t, options{servers: 3, agents: 2})}
	d.pin = d.makePageCertificate(t)
	var redirects []string
	for range d.servers {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		_, port, _ := net.SplitHostPort(l.Addr().String())
		l.Close()
		d.address = append(d.address, "https://"+pageHost+":"+port)
		redirects = append(redirects, d.address[len(d.address)-1]+"/ui/callback")
	}
	d.provider = idp.Start(t, idp.Options{Plain: true, Redirects: redirects})
	d.provider.AddUser(idp.User{Sub: "a1", Email: "alice@example.org", Groups: []string{"ops"}})
	for i, m := range d.servers {
		s := m.settings()
		s["auth"] = fmt.Sprintf("tokens = true\n  oidc {\n    issuer = %q\n    client_id = %q\n  }", d.provider.Issuer(),
			idp.ClientID)
		s["ui"] = fmt.Sprintf("address = %q\n  cert_file = %q\n  key_file = %q",
			strings.Replace(strings.TrimPrefix(d.address[i], "https://"), pageHost, "127.0.0.1", 1), d.path("ui.pem"),
			d.path("ui-key.pem"))
		s["audit"] = fmt.Sprintf("file = %q", d.path("audit-"+m.Name+".log"))
		m.configure(t, s)
	}
	for _, m := range d.members() {
		m.start(t)
	}
	d.waitEligible(t, d.agents...)
	var err error
	if d.browser, err = chrome.Start(d.path("chromium"), relatives,
		"--ignore-certificate-errors-spki-list="+d.pin); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.browser.Close)
	return d
}

// visit opens the page of a server in a new tab.
func (d *doors) visit(t *testing.T, server int, hash string) *webPage {
	t.Helper()
	p := &webPage{t: t, browser: d.browser, address: d.address[server], shots: os.Getenv("OUTSPAN_PAGE_SHOTS")}
	p.Page = p.tab()
	p.do(p.Look(t.Context(), 1280, 800, false))
	p.do(p.Open(t.Context(), p.address+"/"+hash))
	return p
}

// token makes an access token, and returns its text.
func (d *doors) token(t *testing.T, name string, args ...string) string {
	t.Helper()
	var made struct{ Text string }
	d.mustJSON(t, &made, append([]string{"auth", "token", "create", name}, args...)...)
	return made.Text
}

// enter types an access token.
func (p *webPage) enter(token string) {
	p.t.Helper()
	p.do(p.Show(p.t.Context()))
	p.until("document.querySelector('input[name=token]:enabled')")
	p.run("document.querySelector('input[name=token]').value = ''; document.querySelector('input[name=token]').focus()")
	p.do(p.Press(p.t.Context(), token))
	p.do(p.Press(p.t.Context(), "Enter"))
}

// Two people with different rights use the page of two servers: one came with an access token and may only look, the
// other signed in with a provider and drains. A change of rights and the end of a token show at once. Requests
// without a sign-in, from another site, or to another host name are refused.
func TestPageDoor(t *testing.T) {
	long(t)
	needChromium(t)
	t.Parallel()
	d := startDoors(t)
	d.run(t, job{name: "web", count: 2})
	d.must(t, "auth", "grant", "admin", "cert:me")
	d.must(t, "auth", "revoke", "admin", "cert:*")
	d.must(t, "auth", "grant", "operator", "group:ops")
	looker := testDoorToken(t, d)
	alice := testDoorProvider(t, d)
	testDoorRights(t, d, looker)
	testDoorHostile(t, d, looker)
	testDoorStream(t, d)
	testDoorRevoked(t, d, looker)
	testDoorOut(t, d, alice)
	testDoorAudit(t, d)
	testDoorCertificate(t, d)
	for _, p := range []*webPage{looker, alice} {
		if troubles := p.Troubles("Failed to load resource"); len(troubles) > 0 {
			t.Errorf("what went wrong in the page:\n%s", strings.Join(troubles, "\n"))
		}
		for _, at := range p.Requests() {
			if !strings.HasPrefix(at, p.address+"/") && !strings.HasPrefix(at, d.provider.Issuer()) && at != "about:blank" {
				t.Errorf("the page asked for %s", at)
			}
		}
	}
}

// testDoorToken signs in with an access token that may only look: a drain is not offered, and refused when it is tried.
func testDoorToken(t *testing.T, d *doors) *webPage {
	p := d.visit(t, 0, "#/nodes/n1")
	p.shows("Sign in with " + d.provider.Host())
	p.until("!document.querySelector('[role=alert]')")
	p.shoot("door-in")
	p.enter("osa1.aaaaaaaaaaaaaaaa.bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb")
	p.until("document.querySelector('[role=alert]')")
	p.shoot("door-wrong")
	p.enter(d.token(t, "looker", "--role", "viewer"))
	p.until("document.querySelector('.who')?.innerText === 'token:looker'")
	p.until("location.hash === '#/nodes/n1'")
	p.shows("outspan node status n1")
	p.shoot("door-node")
	text, err := p.Text(t.Context())
	p.do(err)
	if strings.Contains(text, "Drain …") {
		t.Errorf("a viewer is offered a drain:\n%s", text)
	}
	var status int
	p.do(p.Eval(t.Context(), `fetch('/v1/drains', { method: 'POST', headers: { 'Content-Type': 'application/json' },
		body: '{"nodes":["n1"]}' }).then(r => r.status)`, &status))
	if status != http.StatusForbidden {
		t.Errorf("a drain by a viewer is answered with %d", status)
	}
	var kept string
	p.do(p.Eval(t.Context(), "document.cookie + JSON.stringify({ ...sessionStorage, ...localStorage })", &kept))
	if kept != "{}" {
		t.Errorf("scripts of the page find %s", kept)
	}
	return p
}

// testDoorProvider signs in with the provider at another server. The way leads back to the screen, and a drain runs.
func testDoorProvider(t *testing.T, d *doors) *webPage {
	p := d.visit(t, 1, "#/nodes/n2")
	p.click("Sign in with " + d.provider.Host())
	p.click("deny")
	p.shows("The sign-in was denied at " + d.provider.Host())
	p.shoot("door-denied")
	p.until("location.pathname === '/' && location.search === '' && location.hash === '#/nodes/n2'")
	p.click("Sign in with " + d.provider.Host())
	p.click("alice@example.org")
	p.until("document.querySelector('.who')?.innerText === 'alice@example.org'")
	p.until("location.pathname === '/' && location.search === '' && location.hash === '#/nodes/n2'")
	p.click("Drain …")
	p.click("Show the forecast")
	p.click("Start the drain")
	p.shows("Drain of n2")
	for _, one := range list[drainView](t, d.cluster, "/v1/drains") {
		if !strings.HasPrefix(one.Actor, "oidc:"+d.provider.Issuer()) {
			t.Errorf("the drain is of %q", one.Actor)
		}
	}
	return p
}

// testDoorRights gives and takes a right while the page is open.
func testDoorRights(t *testing.T, d *doors, p *webPage) {
	p.do(p.Show(t.Context()))
	const offered = "[...document.querySelectorAll('a, button')].some(e => e.innerText.trim() === 'Drain …')"
	p.until("!" + offered)
	for _, act := range []struct{ verb, see string }{{"grant", offered}, {"revoke", "!" + offered}} {
		d.must(t, "auth", act.verb, "operator", "token:looker")
		since := time.Now()
		p.until(act.see)
		if took := time.Since(since); took > 5*time.Second { // it is about one; the machine may be busy
			t.Errorf("after auth %s the page shows it after %v", act.verb, took)
		} else {
			t.Logf("auth %s shows after %v", act.verb, took)
		}
	}
	p.goTo("#/jobs", "job.read")
	p.until("!document.querySelector('nav').innerText.includes('Jobs')")
	d.must(t, "auth", "grant", "deployer", "token:looker")
	since := time.Now()
	p.until("document.querySelector('main tbody')?.innerText.includes('web')") // on a screen that was refused
	if took := time.Since(since); took > 10*time.Second {
		t.Errorf("what was refused shows %v after it is allowed", took)
	}
	d.must(t, "auth", "revoke", "deployer", "token:looker")
}

// testDoorHostile tries to get at the page from another site, by another name, in a frame, and with a forged way back.
func testDoorHostile(t *testing.T, d *doors, p *webPage) {
	ctx := t.Context()
	evil := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		frame := ""
		if r.URL.Path == "/frame" {
			frame = "<iframe src='" + p.address + "/'></iframe>"
		}
		_, _ = w.Write([]byte("<!doctype html><title>evil</title><link rel=icon href='data:,'>" + frame))
	}))
	defer evil.Close()
	other := p.tab()
	p.do(other.Open(ctx, evil.URL))
	p.do(other.Until(ctx, patience, "document.title === 'evil'"))
	for _, ask := range []string{"/v1/nodes'", "/ui/session'", "/v1/nodes/n1/drain', { method: 'POST', mode: 'no-cors' }",
		"/ui/session', { method: 'DELETE' }"} {
		var got string
		ask = strings.Replace(ask, "' }", "', credentials: 'include' }", 1)
		p.do(other.Eval(ctx, "fetch('"+p.address+ask+").then(r => r.type + r.text(), e => 'refused: ' + e)", &got))
		if !strings.HasPrefix(got, "refused: ") && !strings.HasPrefix(got, "opaque") {
			t.Errorf("another site got from %s: %s", ask, got)
		}
	}
	p.do(other.Open(ctx, evil.URL+"/frame"))
	p.do(other.Until(ctx, patience, "document.querySelector('iframe')"))
	waitFor(t, "the refusal of the frame", patience, func() error {
		for _, one := range other.Troubles() {
			if strings.Contains(one, "frame-ancestors") {
				return nil
			}
		}
		return fmt.Errorf("troubles: %v", other.Troubles())
	})
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(p.address, "https://"))
	rebound := p.tab()
	p.do(rebound.Open(ctx, "https://evil.test:"+port+"/"))
	p.do(rebound.Until(ctx, patience, "document.body.innerText.includes('this page is not at')"))
	forged := p.tab() // without a sign-in of this browser at this server
	p.do(forged.Open(ctx, d.address[2]+"/ui/callback?code=x&state=y&error=Call%20555#//evil.test/"))
	p.do(forged.Until(ctx, patience, "document.body.innerText.includes('was not begun in this browser')"))
	p.do(forged.Until(ctx, patience, "location.href === '"+d.address[2]+"/#/fleet'"))
	p.do(p.Show(ctx))
	p.until("document.querySelector('.who')?.innerText === 'token:looker'") // nobody has signed it out
}

// testDoorRevoked revokes the access token while its page is open.
func testDoorRevoked(t *testing.T, d *doors, p *webPage) {
	p.do(p.Show(t.Context()))
	p.goTo("#/nodes/n2", "outspan node status n2")
	d.must(t, "auth", "token", "revoke", "looker")
	since := time.Now()
	p.shows("Your sign-in has ended")
	t.Logf("the page ends %v after its token", time.Since(since))
	if took := time.Since(since); took > 10*time.Second {
		t.Errorf("the page ended %v after its token", took)
	}
	p.shows("was revoked")
	p.shoot("door-ended")
	p.enter(d.token(t, "second", "--role", "viewer"))
	p.until("document.querySelector('.who')?.innerText === 'token:second'")
	p.until("location.hash === '#/nodes/n2'")
	p.shows("outspan node status n2")
}

// testDoorOut signs out. The access token of the login is revoked with that.
func testDoorOut(t *testing.T, d *doors, p *webPage) {
	p.do(p.Show(t.Context()))
	p.click("Sign out")
	p.until("document.querySelector('h1')?.innerText === 'Sign in'")
	var status int
	p.do(p.Eval(t.Context(), "fetch('/v1/nodes').then(r => r.status)", &status))
	if status != http.StatusUnauthorized {
		t.Errorf("after the sign-out, a request is answered with %d", status)
	}
	if out := d.must(t, "auth", "token", "ls"); !strings.Contains(out, "revoked") {
		t.Errorf("the login was not revoked:\n%s", out)
	}
}

func testDoorAudit(t *testing.T, d *doors) {
	for server, wants := range map[string][]string{
		"s1": {`"subject":"token:looker"`, `"operation":"page-sign-in","outcome":"done"`,
			`"operation":"page-sign-in","outcome":"refused"`},
		"s2": {`"subject":"oidc:` + d.provider.Issuer() + `#a1"`, `"operation":"page-sign-out","outcome":"done"`},
	} {
		waitFor(t, "the audit log of "+server, patience, func() error {
			text, err := os.ReadFile(d.path("audit-" + server + ".log"))
			for _, want := range wants {
				if err == nil && !strings.Contains(string(text), want) {
					err = fmt.Errorf("there is no %s", want)
				}
			}
			return err
		})
	}
}

// testDoorCertificate replaces the certificate of the page. A server shows it after SIGHUP, without a restart.
func testDoorCertificate(t *testing.T, d *doors) {
	pin := func() string {
		at := strings.Replace(strings.TrimPrefix(d.address[2], "https://"), pageHost, "127.0.0.1", 1)
		c, err := tls.Dial("tcp", at, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		sum := sha256.Sum256(c.ConnectionState().PeerCertificates[0].RawSubjectPublicKeyInfo)
		return base64.StdEncoding.EncodeToString(sum[:])
	}
	newer := d.makePageCertificate(t)
	if got := pin(); got != d.pin {
		t.Errorf("before the reload the certificate is %s, want %s", got, d.pin)
	}
	if err := d.servers[2].Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the new certificate", patience, func() error {
		if got := pin(); got != newer {
			return fmt.Errorf("it is %s, want %s", got, newer)
		}
		return nil
	})
}
