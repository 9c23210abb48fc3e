package linear

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

// Door gives access to the API of one server. Via must not repeat requests, because the history must contain every
// answer.
type Door struct {
	Name string
	Base string // such as https://10.0.0.1:7640
	Via  http.RoundTripper
}

// problem has the parts of an error answer that this package uses.
type problem struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Index   uint64 `json:"index"`
}

// certain reports whether an error code means that the server has not carried out the write and never will.
func certain(code string) bool {
	switch code {
	case "no_leader", "busy", "disk_full", "rate_limited", "not_caught_up", "timeout", "invalid", "not_found",
		"conflict", "stale", "stale_term":
		return true
	}
	return false
}

var indexInText = regexp.MustCompile(`is at index (\d+), not \d+`)

// send makes one request and returns its result. After a success it also returns the body of the answer.
func (d Door) send(ctx context.Context, a Ask) (Answer, []byte) {
	req, err := d.request(ctx, a)
	if err != nil {
		return Answer{Outcome: Nothing, Text: err.Error()}, nil
	}
	resp, err := d.Via.RoundTrip(req)
	if err != nil {
		return Answer{Outcome: lost(a, err), Text: err.Error()}, nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return Answer{Outcome: lost(a, nil), Text: err.Error()}, nil
	}
	if resp.StatusCode != http.StatusOK {
		return refused(a, resp, body), nil
	}
	out := Answer{Outcome: Done}
	out.Index, _ = strconv.ParseUint(resp.Header.Get("Outspan-Index"), 10, 64)
	ms, _ := strconv.ParseInt(resp.Header.Get("Outspan-Stale-Ms"), 10, 64)
	out.Age = time.Duration(ms) * time.Millisecond
	return out, body
}

// lost returns the outcome of a request that got no answer because of err. A write that was sent may have been carried
// out, so its outcome is unknown.
func lost(a Ask, err error) Outcome {
	var op *net.OpError
	if a.Action == Read || errors.As(err, &op) && op.Op == "dial" {
		return Nothing
	}
	return Unknown
}

func refused(a Ask, resp *http.Response, body []byte) Answer {
	var p problem
	_ = json.Unmarshal(body, &p) // if the body has no code, the outcome of a write is unknown
	out := Answer{Outcome: Unknown, Text: fmt.Sprintf("%d %s: %s", resp.StatusCode, p.Code, p.Message)}
	switch {
	case a.Action == Swap && p.Code == "conflict":
		out.Outcome, out.Index = Conflict, p.Index
		if found := indexInText.FindStringSubmatch(p.Message); found != nil {
			out.At, _ = strconv.ParseUint(found[1], 10, 64)
		}
	case a.Action == Read || certain(p.Code):
		out.Outcome = Nothing
	}
	return out
}

func (d Door) request(ctx context.Context, a Ask) (*http.Request, error) {
	method, path, query, body := a.encode()
	req, err := http.NewRequestWithContext(ctx, method, d.Base+path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// encode returns the request in the form that the API takes.
func (a Ask) encode() (method, path string, query url.Values, body []byte) {
	query = url.Values{}
	path = "/v1/jobs"
	if a.Key.Kind == Register {
		path = "/v1/nodes/" + a.Key.Name
	}
	if a.Action == Read {
		if a.Key.Kind == Job {
			path += "/" + a.Key.Name
		}
		query.Set("consistency", string(a.Level))
		if a.After > 0 {
			query.Set("index", strconv.FormatUint(a.After, 10))
			query.Set("wait", strconv.FormatInt(a.Wait.Milliseconds(), 10)+"ms")
		}
		return http.MethodGet, path, query, nil
	}
	query.Set("request_id", a.Request)
	if a.Key.Kind == Register {
		body, _ = json.Marshal(map[string]any{"labels": map[string]string{a.Key.Part: a.Value}})
		return http.MethodPost, path + "/label", query, body
	}
	if a.Action == Swap {
		query.Set("if_index", strconv.FormatUint(a.IfIndex, 10))
	}
	group := map[string]any{"name": "none", "count": 0, "exec": map[string]any{"command": "/bin/true"},
		"env": map[string]string{"V": a.Value}}
	body, _ = json.Marshal(map[string]any{"job": map[string]any{"name": a.Key.Name, "groups": []any{group}}})
	return http.MethodPost, path, query, body
}

// shownObject has the parts of a node or a job that this package uses, as a read shows them.
type shownObject struct {
	Labels  map[string]string `json:"labels"`
	Version uint64            `json:"version"`
	Index   uint64            `json:"index"`
	Spec    struct {
		Groups []struct {
			Env map[string]string `json:"env"`
		} `json:"groups"`
	} `json:"spec"`
}

// read returns one Answer for each part of the object that body shows: one for a job, and one for each label in parts.
func (a Ask) read(got Answer, body []byte, parts []string) ([]Answer, error) {
	var o shownObject
	if a.Key.Kind == Register { // shownObject does not fit, because a node's version is a string
		var node struct {
			Labels map[string]string `json:"labels"`
		}
		if err := json.Unmarshal(body, &node); err != nil {
			return nil, err
		}
		o.Labels = node.Labels
	} else if err := json.Unmarshal(body, &o); err != nil {
		return nil, err
	}
	if a.Key.Kind == Job {
		got.At, got.Version = o.Index, o.Version
		if len(o.Spec.Groups) == 1 {
			got.Value = o.Spec.Groups[0].Env["V"]
		}
		return []Answer{got}, nil
	}
	var all []Answer
	for _, part := range parts {
		one := got
		one.Value = o.Labels[part]
		all = append(all, one)
	}
	return all, nil
}
