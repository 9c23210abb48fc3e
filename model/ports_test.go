package model

import (
	"testing"

	"github.com/fxamacker/cbor/v2"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// Ports are encoded to the same bytes as a map from name to number, in the CBOR library's deterministic mode.
func TestPortsAreAMapOnDisk(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.MapOfN(rapid.String(), rapid.Int(), 0, 9).Draw(t, "ports")
		ports := Ports{}
		for name, number := range numbers {
			ports = append(ports, Port{name, number})
		}
		ports.Sorted()
		mode, err := cbor.CoreDetEncOptions().EncMode()
		if err != nil {
			t.Fatal(err)
		}
		want, err := mode.Marshal(numbers)
		if err != nil {
			t.Fatal(err)
		}
		got, err := ports.MarshalCBOR()
		if err != nil || string(got) != string(want) {
			t.Fatalf("%v is %x, want %x (%v)", numbers, got, want, err)
		}
		var back Ports
		if err := back.UnmarshalCBOR(got); err != nil || !cmp.Equal(back, ports) {
			t.Fatalf("read back %v, want %v (%v)", back, ports, err)
		}
		if diff := cmp.Diff(numbers, ports.Map()); diff != "" {
			t.Fatal(diff)
		}
	})
}

// The text of a port problem names the port and its owner (a service or the agent), and the reason.
func TestWordsOfAPortProblem(t *testing.T) {
	for want, p := range map[string]PortProblem{
		"port 80 of service web is not open: in use": {Port: 80, Service: "web", Code: PortTaken, Reason: "in use"},
		"port 7640 of its agent is not open: denied": {Port: 7640, Code: PortFailed, Reason: "denied"},
	} {
		if got := p.Words(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestPortsThatAreRefused(t *testing.T) {
	for name, data := range map[string]string{
		"nothing":                "",
		"null":                   "\xf6",
		"a list":                 "\x81\x01",
		"a name twice":           "\xa2\x61a\x01\x61a\x02",
		"names out of order":     "\xa2\x61b\x01\x61a\x02",
		"a number for a name":    "\xa1\x01\x01",
		"a text for a number":    "\xa1\x61a\x61b",
		"a number with a tail":   "\xa1\x61a\x18\x01",
		"a name cut short":       "\xa1\x65a",
		"more than it says":      "\xa1\x61a\x01\x00",
		"less than it says":      "\xa2\x61a\x01",
		"a huge count":           "\xbb\x7f\xff\xff\xff\xff\xff\xff\xff",
		"a name that is no text": "\xa1\x61\xff\x01",
	} {
		ports := Ports{{"kept", 1}}
		if err := ports.UnmarshalCBOR([]byte(data)); err == nil || ports[0].Name != "kept" {
			t.Errorf("%s is taken for %v (%v)", name, ports, err)
		}
	}
}
