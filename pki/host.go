package pki

import (
	"net"
	"strings"

	"github.com/outspan/outspan/model"
)

// reservedDomain is the end of the DNS names that stand for roles.
const reservedDomain = ".outspan"

// CheckHost refuses a host that must not be in a certificate besides the names of its role. It accepts an IP address,
// and a DNS name whose first label may be "*" and whose labels may contain underscores. Names under .outspan are
// reserved, in upper case too, because DNS names are compared without regard to case. Code: invalid.
func CheckHost(h string) error {
	if net.ParseIP(h) != nil {
		return nil
	}
	if !validDNSName(h) {
		return model.Refuse(model.CodeInvalid, "host %q is neither an IP address nor a DNS name", model.Clip(h)).
			WithHint("give names without scheme or port: --host s1.lan,10.0.0.1")
	}
	if strings.HasSuffix(strings.ToLower(h), reservedDomain) {
		return model.Refuse(model.CodeInvalid, "host %q is reserved: names under .outspan stand for roles", model.Clip(h)).
			WithHint("leave it out; the name of the role is added by itself")
	}
	return nil
}

func validDNSName(s string) bool {
	if s == "" || len(s) > 253 {
		return false
	}
	for i, label := range strings.Split(s, ".") {
		if i == 0 && label == "*" {
			continue
		}
		if !ValidCluster(label) || strings.HasSuffix(label, "-") {
			return false
		}
	}
	return true
}
