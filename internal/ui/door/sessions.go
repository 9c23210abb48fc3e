package door

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"sync"
	"time"
)

// Bounds of sessions.
const (
	maxSessions   = 4096           // in all
	maxPerSubject = 16             // of one person
	idleTime      = 8 * time.Hour  // without a request
	sessionTime   = 12 * time.Hour // in all, however often it is used
)

// session is somebody who has signed in. Its fields don't change, except used, which the lock of sessions guards.
type session struct {
	key     [32]byte // hash of the text in the cookie
	token   string   // the access token
	tokenID string
	subject string
	login   bool // the token was made by this sign-in, and signing out revokes it
	ends    time.Time
	used    time.Time
	life    context.Context // ends with the session
	end     context.CancelFunc
}

// id tells the session apart from others. It opens nothing.
func (o *session) id() string { return hex.EncodeToString(o.key[:8]) }

// sessions are those who have signed in. It is safe for concurrent use.
type sessions struct {
	now  func() time.Time
	over func(*session) // is told which sessions end by themselves; it must not block

	mu  sync.Mutex
	all map[[32]byte]*session
	of  map[string]int // how many sessions each subject has
}

func newSessions(now func() time.Time, over func(*session)) *sessions {
	return &sessions{now: now, over: over, all: map[[32]byte]*session{}, of: map[string]int{}}
}

// begin adds a session and returns the text for its cookie. If there are too many, the one that was not used for
// longest ends: of the same subject, or of the subject that has most.
func (s *sessions) begin(one session) (cookie string) {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // it never fails
	cookie = base64.RawURLEncoding.EncodeToString(raw[:])
	now := s.now()
	if last := now.Add(sessionTime); one.ends.IsZero() || one.ends.After(last) {
		one.ends = last
	}
	one.key, one.used = sha256.Sum256([]byte(cookie)), now
	one.life, one.end = context.WithCancel(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	if s.of[one.subject] >= maxPerSubject {
		s.dropOldest(one.subject)
	}
	if len(s.all) >= maxSessions {
		s.dropOldest(s.busiest())
	}
	s.all[one.key] = &one
	s.of[one.subject]++
	return cookie
}

// with returns the session of a cookie, or nil if there is none, or if it has ended.
func (s *sessions) with(cookie string) *session {
	key, now := sha256.Sum256([]byte(cookie)), s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.all[key]
	switch {
	case one == nil:
		return nil
	case one.over(now):
		s.end(one)
		return nil
	}
	one.used = now
	return one
}

// stop ends a session, without a call of over. It returns false if the session has ended before.
func (s *sessions) stop(one *session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.drop(one)
}

// run ends sessions when their time is over, so that streams end too. It returns when ctx ends, and ends all of them.
func (s *sessions) run(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.mu.Lock()
			s.sweep(s.now())
			s.mu.Unlock()
		case <-ctx.Done():
			s.mu.Lock()
			for _, one := range s.all {
				s.drop(one)
			}
			s.mu.Unlock()
			return
		}
	}
}

func (o *session) over(now time.Time) bool { return !now.Before(o.ends) || now.Sub(o.used) >= idleTime }

// The caller of the rest holds the lock.

func (s *sessions) end(one *session) {
	if s.drop(one) {
		s.over(one)
	}
}

func (s *sessions) drop(one *session) bool {
	if s.all[one.key] != one {
		return false
	}
	delete(s.all, one.key)
	if s.of[one.subject]--; s.of[one.subject] == 0 {
		delete(s.of, one.subject)
	}
	one.end()
	return true
}

func (s *sessions) sweep(now time.Time) {
	for _, one := range s.all {
		if one.over(now) {
			s.end(one)
		}
	}
}

func (s *sessions) dropOldest(subject string) {
	var oldest *session
	for _, one := range s.all {
		if one.subject == subject && (oldest == nil || one.used.Before(oldest.used)) {
			oldest = one
		}
	}
	if oldest != nil {
		s.end(oldest)
	}
}

func (s *sessions) busiest() (subject string) {
	for name, n := range s.of {
		if subject == "" || n > s.of[subject] || n == s.of[subject] && name < subject {
			subject = name
		}
	}
	return subject
}
