//go:build !shortlived

package pki

import "time"

// MemberTTL is the lifetime of the certificates of servers and agents on managed machines. Builds with the tag
// shortlived, which only tests make, have another one.
const MemberTTL = 30 * 24 * time.Hour
