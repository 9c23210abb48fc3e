package transport_test

import (
	"net"
	"testing"

	"github.com/outspan/outspan/transport"
)

// All addresses of an IPv6 network of 64 bits are one source, and each IPv4 address is one, in both of its forms.
func TestSources(t *testing.T) {
	for _, test := range []struct {
		address net.Addr
		want    string
		host    string
	}{
		{&net.TCPAddr{IP: net.ParseIP("10.0.0.1"), Port: 1}, "10.0.0.1", "10.0.0.1"},
		{&net.TCPAddr{IP: net.ParseIP("::ffff:10.0.0.1"), Port: 2}, "10.0.0.1", "10.0.0.1"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8:1:2::1"), Port: 1}, "2001:db8:1:2::/64", "2001:db8:1:2::1"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8:1:2:ffff::2"), Port: 2}, "2001:db8:1:2::/64", "2001:db8:1:2:ffff::2"},
		{&net.TCPAddr{IP: net.ParseIP("2001:db8:1:3::1"), Port: 1}, "2001:db8:1:3::/64", "2001:db8:1:3::1"},
		{&net.TCPAddr{IP: net.ParseIP("fe80::1"), Port: 1, Zone: "eth0"}, "fe80::/64", "fe80::1"},
		{&net.UnixAddr{Name: "@", Net: "unix"}, "@", "@"},
		{nil, "", ""},
	} {
		if got := transport.SourceOf(test.address); got != test.want {
			t.Errorf("%v is %q, want %q", test.address, got, test.want)
		}
		if got := transport.HostOf(test.address); got != test.host {
			t.Errorf("the host of %v is %q, want %q", test.address, got, test.host)
		}
	}
}
