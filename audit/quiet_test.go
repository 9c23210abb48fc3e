package audit_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/outspan/outspan/audit"
)

func TestRefusalsAreCounted(t *testing.T) {
	s := &sink{}
	l, stop := run(t, audit.Config{Sinks: []audit.Sink{s}})
	for i := range 1000 {
		l.Refuse(audit.Line{Stage: audit.Ended, Subject: "agent:n1", Code: "forbidden", Outcome: audit.Refused})
		peer := fmt.Sprintf("10.0.0.%d:%d", i%2, 2000+i)
		l.Refuse(audit.Line{Stage: audit.Ended, Peer: peer, Code: "rate_limited", Outcome: audit.Refused})
	}
	stop()
	told := map[string]int{}
	for text := range strings.Lines(s.text()) {
		var line audit.Line
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		told[line.Code] += max(line.Count, 1)
	}
	if n := strings.Count(s.text(), "\n"); told["forbidden"] != 1000 || told["rate_limited"] != 1000 || n > 200 {
		t.Errorf("%v in %d lines", told, n)
	}
}

// Of the handshakes that fail, each address has one line a minute, and then one with the number of the others. They
// take no lines from refusals.
func TestFailedHandshakesAreCounted(t *testing.T) {
	s := &sink{}
	l, stop := run(t, audit.Config{Sinks: []audit.Sink{s}})
	for i := range 900 {
		l.Handshake(audit.Line{Stage: audit.Ended, Operation: "handshake", Peer: fmt.Sprintf("10.0.0.%d:%d", i%3, 2000+i),
			Code: []string{"not_tls", "canceled"}[i%2], Outcome: audit.Refused})
	}
	l.Refuse(audit.Line{Stage: audit.Ended, Operation: "other", Peer: "10.0.0.1:9", Code: "unauthenticated"})
	stop()
	own, counted, others := 0, 0, 0
	for text := range strings.Lines(s.text()) {
		var line audit.Line
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		switch {
		case line.Operation == "other":
			others++
		case line.Stage == audit.Counted && line.Operation == "handshake":
			counted += line.Count
		default:
			own++
		}
	}
	if own != 3 || counted != 897 || others != 1 {
		t.Errorf("%d lines and %d counted, %d others:\n%s", own, counted, others, s.text())
	}
}

// However many addresses strangers have, their refusals have few lines, and hide no subject that is refused.
func TestRefusedStrangersFillNoLogAndHideNobody(t *testing.T) {
	s := &sink{}
	l, stop := run(t, audit.Config{Sinks: []audit.Sink{s}})
	one := audit.Line{Stage: audit.Ended, Outcome: audit.Refused, Code: "unauthenticated"}
	for i := range 3000 {
		for _, peer := range []string{
			fmt.Sprintf("[2001:db8::%x]:%d", i, 2000+i), fmt.Sprintf("10.0.%d.%d:99", i/250, i%250),
		} {
			one.Peer, one.Code = peer, []string{"unauthenticated", "rate_limited"}[i%2]
			l.Refuse(one)
		}
		l.Refuse(audit.Line{Stage: audit.Ended, Outcome: audit.Refused, Code: "forbidden",
			Subject: fmt.Sprintf("cert:p%d", i)})
	}
	if !l.Admit(audit.Line{Stage: audit.Begun, Peer: "10.0.0.1:99"}) {
		t.Error("refusals of strangers keep a newcomer out")
	}
	stop()
	strangers, counted, v6, subjects := 0, 0, 0, map[string]bool{}
	for text := range strings.Lines(s.text()) {
		var line audit.Line
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		if line.Subject != "" {
			subjects[line.Subject] = true
			continue
		}
		strangers++
		counted += max(line.Count, 1)
		if strings.HasPrefix(line.Peer, "[2001:db8::") {
			v6++
		}
	}
	if strangers > 500 || counted != 6000 || v6 > 60 || len(subjects) != 3000 {
		t.Errorf("%d lines of %d refusals of strangers, %d of them from one network, and %d subjects", strangers, counted, v6,
			len(subjects))
	}
}
