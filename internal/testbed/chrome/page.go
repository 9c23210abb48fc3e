package chrome

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Page is a tab of the browser. It is safe for concurrent use.
type Page struct {
	b       *Browser
	session string

	mu       sync.Mutex
	troubles []string
	requests []string
}

// NewPage opens an empty tab.
func (b *Browser) NewPage(ctx context.Context) (*Page, error) {
	var target struct{ TargetID string }
	if err := b.call(ctx, "", "Target.createTarget", map[string]any{"url": "about:blank"}, &target); err != nil {
		return nil, err
	}
	var attached struct{ SessionID string }
	err := b.call(ctx, "", "Target.attachToTarget",
		map[string]any{"targetId": target.TargetID, "flatten": true}, &attached)
	if err != nil {
		return nil, err
	}
	p := &Page{b: b, session: attached.SessionID}
	b.mu.Lock()
	b.pages[p.session] = p
	b.mu.Unlock()
	for _, domain := range []string{"Page", "Runtime", "Log", "Network", "Audits"} {
		if err := p.call(ctx, domain+".enable", nil, nil); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Worker returns the shared worker whose address ends with a name. It can be asked and measured as a tab.
func (b *Browser) Worker(ctx context.Context, name string) (*Page, error) {
	var all struct {
		TargetInfos []struct{ TargetID, Type, URL string }
	}
	if err := b.call(ctx, "", "Target.getTargets", map[string]any{}, &all); err != nil {
		return nil, err
	}
	for _, one := range all.TargetInfos {
		if one.Type != "shared_worker" || !strings.HasSuffix(one.URL, name) {
			continue
		}
		var attached struct{ SessionID string }
		err := b.call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": one.TargetID, "flatten": true}, &attached)
		return &Page{b: b, session: attached.SessionID}, err
	}
	return nil, fmt.Errorf("there is no shared worker %s", name)
}

func (p *Page) call(ctx context.Context, method string, params map[string]any, into any) error {
	if params == nil {
		params = map[string]any{}
	}
	return p.b.call(ctx, p.session, method, params, into)
}

// note notes errors of the console, exceptions, violations of the policy, and requests.
func (p *Page) note(m message) {
	var e struct {
		Type    string
		Args    []struct{ Value, Description any }
		Entry   struct{ Level, Text, URL string }
		Details struct {
			Text      string
			Exception struct{ Description string }
		} `json:"exceptionDetails"`
		Request struct{ URL string }
		Issue   struct {
			Code    string
			Details json.RawMessage
		}
	}
	if json.Unmarshal(m.Params, &e) != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	add := func(format string, args ...any) { p.troubles = append(p.troubles, fmt.Sprintf(format, args...)) }
	switch m.Method {
	case "Runtime.consoleAPICalled":
		if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
			add("console %s: %v", e.Type, e.Args)
		}
	case "Runtime.exceptionThrown":
		add("exception: %s %s", e.Details.Text, e.Details.Exception.Description)
	case "Log.entryAdded":
		if e.Entry.Level == "error" || e.Entry.Level == "warning" {
			add("%s: %s %s", e.Entry.Level, e.Entry.Text, e.Entry.URL)
		}
	case "Audits.issueAdded":
		if e.Issue.Code == "ContentSecurityPolicyIssue" {
			add("violation: %s", e.Issue.Details)
		}
	case "Network.requestWillBeSent":
		p.requests = append(p.requests, e.Request.URL)
	}
}

// Troubles returns what went wrong in the page so far: errors and warnings of the console, exceptions, and violations
// of the content security policy. It leaves out those that contain one of the texts.
func (p *Page) Troubles(except ...string) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(p.troubles), func(one string) bool {
		return slices.ContainsFunc(except, func(text string) bool { return strings.Contains(one, text) })
	})
}

// Requests returns the addresses that the page has asked for.
func (p *Page) Requests() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Show brings the tab to the front: the others are hidden.
func (p *Page) Show(ctx context.Context) error { return p.call(ctx, "Page.bringToFront", nil, nil) }

// Open leads the tab to an address.
func (p *Page) Open(ctx context.Context, address string) error {
	var got struct{ ErrorText string }
	if err := p.call(ctx, "Page.navigate", map[string]any{"url": address}, &got); err != nil {
		return err
	}
	if got.ErrorText != "" {
		return fmt.Errorf("open %s: %s", address, got.ErrorText)
	}
	return nil
}

// Eval evaluates an expression in the page, waits for a promise, and decodes the value into that of into, unless it is
// nil.
func (p *Page) Eval(ctx context.Context, expression string, into any) error {
	var got struct {
		Result  struct{ Value json.RawMessage }
		Details *struct {
			Text      string
			Exception struct{ Description string }
		} `json:"exceptionDetails"`
	}
	err := p.call(ctx, "Runtime.evaluate",
		map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true, "userGesture": true}, &got)
	switch {
	case err != nil:
		return err
	case got.Details != nil:
		return fmt.Errorf("%s: %s %s", expression, got.Details.Text, got.Details.Exception.Description)
	case into == nil || got.Result.Value == nil:
		return nil
	}
	return json.Unmarshal(got.Result.Value, into)
}

// Until waits until an expression is true, at most for limit. After that, the error has the text of the page.
func (p *Page) Until(ctx context.Context, limit time.Duration, expression string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var ok bool
		err := p.Eval(ctx, "!!("+expression+")", &ok)
		if err == nil && ok {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			var text string
			seen := p.Eval(context.WithoutCancel(ctx), "location.href + '\\n' + document.body.innerText", &text)
			return errors.Join(fmt.Errorf("%s is not so after %v; the page shows:\n%s", expression, limit, text), err, seen)
		}
	}
}

// Text returns the visible text of the page.
func (p *Page) Text(ctx context.Context) (text string, err error) {
	err = p.Eval(ctx, "document.body.innerText", &text)
	return text, err
}

// Look sets the width and the height of the window, and whether the person prefers dark pages.
func (p *Page) Look(ctx context.Context, width, height int, dark bool) error {
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	return p.Emulate(ctx, width, height, map[string]string{"prefers-color-scheme": scheme})
}

// Emulate sets the width and the height of the window, and media features such as forced-colors: those that are not
// named are as the browser has them.
func (p *Page) Emulate(ctx context.Context, width, height int, features map[string]string) error {
	list := []map[string]string{}
	for name, value := range features {
		list = append(list, map[string]string{"name": name, "value": value})
	}
	return errors.Join(
		p.call(ctx, "Emulation.setDeviceMetricsOverride",
			map[string]any{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}, nil),
		p.call(ctx, "Emulation.setEmulatedMedia", map[string]any{"features": list}, nil))
}

// Zone sets the time zone of the page, such as Asia/Tokyo.
func (p *Page) Zone(ctx context.Context, name string) error {
	return p.call(ctx, "Emulation.setTimezoneOverride", map[string]any{"timezoneId": name}, nil)
}

// Screenshot writes a picture of the whole page as PNG.
func (p *Page) Screenshot(ctx context.Context, file string) error {
	var got struct{ Data string }
	err := p.call(ctx, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": true}, &got)
	if err != nil {
		return err
	}
	raw, err := base64.StdEncoding.DecodeString(got.Data)
	if err != nil {
		return err
	}
	return os.WriteFile(file, raw, 0o644)
}

// Memory collects garbage, and returns how many bytes are then in use by scripts and their buffers.
func (p *Page) Memory(ctx context.Context) (int64, error) {
	var got struct{ UsedSize, BackingStorageSize float64 }
	err := errors.Join(p.call(ctx, "HeapProfiler.collectGarbage", nil, nil),
		p.call(ctx, "Runtime.getHeapUsage", nil, &got))
	return int64(got.UsedSize + got.BackingStorageSize), err
}
