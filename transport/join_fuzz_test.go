package transport

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/outspan/outspan/api"
	"github.com/outspan/outspan/model"
)

// FuzzJoinMessages: a message of a newcomer or to one is either read, or refused with a code, or ends too early. What
// was read stays the same when it is sent and read again, and a request that passes its checks is within its bounds.
func FuzzJoinMessages(f *testing.F) {
	for _, message := range []any{
		JoinRequest{Token: "osj1.agent.x.y", Agent: []byte{1}, Server: []byte{2}, Address: "10.0.0.4:7640",
			Version: "1.2.3", Labels: map[string]string{"rack": "r1"}},
		JoinReply{Cluster: "c1", Roots: [][]byte{{1}}, Agent: [][]byte{{2}, {3}}, Servers: []string{"10.0.0.1:7640"}},
		JoinReply{Problem: api.NewProblem(model.Refuse(model.CodeBusy, "no").WithHint("later"))},
	} {
		var sent bytes.Buffer
		if err := writeJoin(&sent, message); err != nil {
			f.Fatal(err)
		}
		f.Add(sent.Bytes())
	}
	f.Add([]byte{0, 0, 0, 2, 0xbf, 0xff})
	f.Add([]byte{0, 1, 0, 1})
	f.Fuzz(func(t *testing.T, data []byte) {
		var request JoinRequest
		if stays(t, data, &request, new(JoinRequest)) {
			r := request
			if r.check() == nil && (len(r.Token) > maxJoinToken || len(r.Server)+len(r.Agent) > 2*maxJoinCSR ||
				len(r.Server)+len(r.Agent) == 0 || len(r.Address) > maxJoinAddress || len(r.Labels) > model.MaxLabels) {
				t.Fatalf("out of bounds: %+v", r)
			}
		}
		stays(t, data, new(JoinReply), new(JoinReply))
	})
}

// stays reads a message from data into first, and reports whether that succeeds. Then it sends first, reads the bytes
// into second, and fails the test if the two differ.
func stays(t *testing.T, data []byte, first, second any) bool {
	t.Helper()
	if err := readJoin(bytes.NewReader(data), first); err != nil {
		refusal, ok := errors.AsType[*model.Error](err)
		if ok && (refusal.Code == model.CodeInvalid || refusal.Code == model.CodeTooLarge) || errors.Is(err, io.EOF) ||
			errors.Is(err, io.ErrUnexpectedEOF) {
			return false
		}
		t.Fatalf("refused with %v", err)
	}
	var sent, again bytes.Buffer
	if err := writeJoin(&sent, first); err != nil {
		if errors.Is(err, &model.Error{Code: model.CodeTooLarge}) {
			return true // the shortest encoding of a time can be longer than that in data
		}
		t.Fatal(err)
	}
	if err := readJoin(bytes.NewReader(sent.Bytes()), second); err != nil {
		t.Fatalf("what was sent can't be read: %v", err)
	}
	if err := writeJoin(&again, second); err != nil || !bytes.Equal(sent.Bytes(), again.Bytes()) {
		t.Fatalf("it came back different: %v\n%x\n%x", err, sent.Bytes(), again.Bytes())
	}
	return true
}
