//go:build !shortlived

package pki

import "time"

// MemberTTL is the lifetime of the certificates of servers and agents on managed machines. A build with the tag
// shortlived, which only tests make, has another one.
const MemberTTL = 30 * 24 * time.Hour
