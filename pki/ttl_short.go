//go:build shortlived

package pki

import "time"

// MemberTTL is short in this build, so that tests of whole clusters see certificates renewed.
const MemberTTL = 6 * time.Minute
