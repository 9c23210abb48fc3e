package httpapi_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/fsm"
	"github.com/outspan/outspan/internal/reach"
	"github.com/outspan/outspan/model"
)

// Events can be selected by the name of a node, by a unique prefix of a name, and by age. A name or type that does not
// exist is an error with a hint, not an empty list. But a job that does not exist yet can be followed.
func TestEventsAreChosen(t *testing.T) {
	r := newRig(t)
	r.world()
	r.apply(&fsm.NodeIntent{ID: "01N2", Intent: model.IntentCordoned})
	for _, c := range []struct {
		query    string
		subjects string // the subjects of all received events, each once
		code     model.Code
		says     string
	}{
		{query: "subject=node/01N2&type=node.state_changed", subjects: "node/01N2"},
		{query: "subject=node/n2", subjects: "node/01N2"},
		{query: "subject=node/", subjects: "node/01N1 node/01N2"},
		{query: "subject=job/web,instance/inst-a", subjects: "job/web instance/inst-a"},
		{query: "subject=job/we", subjects: "job/web"},
		{query: "subject=node/n9", code: model.CodeNotFound, says: `there is no node "n9"`},
		{query: "subject=nodes/n2", code: model.CodeInvalid, says: "did you mean: node/n2"},
		{query: "subject=nodes/", code: model.CodeInvalid, says: "did you mean: node/"},
		{query: "subject=n2", code: model.CodeInvalid, says: "such as node/NAME"},
		{query: "subject=job/shop", code: model.CodeNotFound, says: `there is no job "shop"`},
		{query: "type=node.state_change", code: model.CodeInvalid, says: "did you mean: node.state_changed"},
		{query: "type=nodes.", code: model.CodeInvalid, says: "did you mean: node."},
		{query: "type=zzz", code: model.CodeInvalid, says: "node.registered, node.state_changed"},
		{query: "since=30m&subject=node/n2", subjects: "node/01N2"},
		{query: "since=" + r.born.Add(-1).UTC().Format("2006-01-02T15:04:05Z") + "&subject=node/n2", subjects: "node/01N2"},
		{query: "since=2999-01-01T00:00:00Z", subjects: ""},
		{query: "since=yesterday", code: model.CodeInvalid, says: "30m"},
	} {
		q := values(c.query)
		q.Set("follow", "false")
		if !q.Has("since") {
			q.Set("after", "0")
		}
		resp, err := r.cli().
			Open(t.Context(),
				reach.Request{Path: "/v1/events", Query: q, Header: http.Header{"Accept": {"application/x-ndjson"}}})
		var refused *model.Error
		if c.code != "" {
			if !errors.As(err, &refused) || refused.Code != c.code || !strings.Contains(refused.Error(), c.says) {
				t.Errorf("%s: error %v", c.query, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.query, err)
			continue
		}
		var subjects []string
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			var e api.Event
			if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(strings.Join(subjects, " ")+" ", e.Subject+" ") {
				subjects = append(subjects, e.Subject)
			}
		}
		resp.Body.Close()
		if got := strings.Join(subjects, " "); got != c.subjects {
			t.Errorf("%s: events of %q, want %q", c.query, got, c.subjects)
		}
	}
	ctx := t.Context()
	resp, err := r.cli().Open(ctx, reach.Request{Path: "/v1/events", Query: values("subject=job/later")})
	if err != nil {
		t.Fatalf("a job that is yet to come can't be followed: %v", err)
	}
	resp.Body.Close()
}
