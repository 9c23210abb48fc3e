//go:build ephemeral

package pki

import "time"

// MemberTTL is so short in this build that a test can wait until a certificate has expired.
const MemberTTL = time.Minute
