package transport_test

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"github.com/outspan/outspan/model"
	"github.com/outspan/outspan/transport"
)

// FuzzAgentMessages: an agent's message is either decoded, or refused with CodeInvalid. A decoded message stays the
// same when it is encoded and decoded again.
func FuzzAgentMessages(f *testing.F) {
	code := 137
	for _, message := range []any{
		transport.RegisterRequest{Node: "n1", Name: "n1", Agent: model.AgentInfo{BootID: "b", Address: "10.0.0.1"},
			Shape: model.NodeShape{Labels: map[string]string{"rack": "r1"}}},
		transport.ReportRequest{Node: "n1", Epoch: 3, Full: true,
			Instances: []model.InstanceStatus{{ID: "i", Observed: model.ObservedFailed, Reason: "oom_killed", ExitCode: &code,
				Facts: map[string]string{"leader": "true"}}}, Transfers: []model.TransferReport{{ID: "t"}}},
		transport.AssignmentsRequest{Node: "n1", Epoch: 3, Index: 9, Wait: 60 * model.Second},
		transport.ServicesRequest{Node: "n1"},
	} {
		data, err := transport.EncodeCBOR(message)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte{0xbf, 0xff})
	f.Add([]byte{0xa1, 4, 0x9a, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, fresh := range []func() any{
			func() any { return new(transport.RegisterRequest) }, func() any { return new(transport.ReportRequest) },
			func() any { return new(transport.AssignmentsRequest) }, func() any { return new(transport.ServicesRequest) },
		} {
			first, second := fresh(), fresh()
			if err := transport.DecodeCBOR(data, first); err != nil {
				if known, ok := errors.AsType[*model.Error](err); !ok || known.Code != model.CodeInvalid {
					t.Fatalf("refused with %v", err)
				}
				continue
			}
			again, err := transport.EncodeCBOR(first)
			if err != nil {
				t.Fatal(err)
			}
			if err := transport.DecodeCBOR(again, second); err != nil {
				t.Fatalf("%T: what was written can't be read: %v", first, err)
			}
			third, err := transport.EncodeCBOR(second)
			if err != nil || !bytes.Equal(again, third) {
				t.Fatalf("%s came back different: %v\n%x\n%x", reflect.TypeOf(first), err, again, third)
			}
		}
	})
}

// FuzzParseGossipKey: only keys of 16, 24 or 32 bytes are accepted. No error repeats an input of more than 20 bytes.
func FuzzParseGossipKey(f *testing.F) {
	f.Add("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n")
	f.Add("AAECAwQFBgcICQoLDA0ODw==")
	f.Add("secret")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := transport.ParseGossipKey(text)
		if err == nil {
			if n := len(key); n != 16 && n != 24 && n != 32 {
				t.Fatalf("a key of %d bytes", n)
			}
			return
		}
		if known, ok := errors.AsType[*model.Error](err); !ok || known.Code != model.CodeGossipKeyInvalid || len(text) > 20 &&
			bytes.Contains([]byte(err.Error()), []byte(text)) {
			t.Fatalf("refused with %v", err)
		}
	})
}
