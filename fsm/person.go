package fsm

import (
	"bytes"
	"crypto/sha256"
	"strings"

	"github.com/outspan/outspan/model"
)

// maxPeople bounds the rows of people.
const maxPeople = 10_000

// everyone is the name in the row that a recovery writes. Its VoidBefore holds for the certificates of all people.
const everyone = "*"

// Person is what the state knows of the certificates of a person or script. Several certificates of one name may count
// at a time; the row describes the newest. A certificate that was made with files has no row, and counts too unless it
// is void.
type Person struct {
	Subject      model.Subject `cbor:"1,keyasint"`           // of kind cert
	Key          []byte        `cbor:"2,keyasint,omitempty"` // SHA-256 of the newest certificate's public key (SPKI)
	NotAfter     int64         `cbor:"3,keyasint,omitempty"` // when the newest certificate expires, in Unix ms
	Creator      model.Actor   `cbor:"4,keyasint,omitempty"`
	IssuedIndex  uint64        `cbor:"5,keyasint,omitempty"` // index of the last PersonAdmit; 0 if there was none
	RevokedIndex uint64        `cbor:"6,keyasint,omitempty"`
	Reason       string        `cbor:"7,keyasint,omitempty"` // why the certificates were revoked
	// VoidBefore is the State.MomentNumber of the last revocation, or 0. It stays when the person gets another
	// certificate. Certificates of the name with a lower number are void; see pki.AdmittedAt.
	VoidBefore uint64 `cbor:"8,keyasint,omitempty"`
	Number     uint64 `cbor:"9,keyasint,omitempty"` // of the newest certificate; see pki.AdmittedAt
}

// PersonAdmit records a certificate that the leader has signed for a person. Number is the number in the certificate;
// see pki.AdmittedAt. A person whose certificates were revoked returns only with a new key. Codes: invalid; stale if
// the certificate is void already; member_revoked for a revoked key; conflict if there are too many people.
type PersonAdmit struct {
	Subject  model.Subject `cbor:"1,keyasint"` // of kind cert
	Key      []byte        `cbor:"2,keyasint"`
	NotAfter int64         `cbor:"3,keyasint"`
	Number   uint64        `cbor:"4,keyasint"`
}

// PersonRevoke revokes all certificates of a name, also those that were made with files and have no row. If they are
// revoked already, nothing changes. Codes: invalid; not_found without a CA; conflict if there are too many people.
type PersonRevoke struct {
	Subject model.Subject `cbor:"1,keyasint"` // of kind cert
	Reason  string        `cbor:"2,keyasint,omitempty"`
}

// Everyone reports whether the row is that of a recovery, which is about all people.
func (p *Person) Everyone() bool { return p.Subject.Name == everyone }

// PersonVoid reports whether a certificate of a person with this number is void: because the name was revoked since, or
// because the state was recovered since.
func (s *trust) PersonVoid(name string, number uint64) bool {
	for _, one := range [...]string{name, everyone} {
		if p, ok := s.People.Get(one); ok && number < p.VoidBefore {
			return true
		}
	}
	return false
}

func (c *PersonAdmit) apply(s *State) error {
	if refusal := c.check(s); refusal != nil {
		return refusal
	}
	old, known := s.People.Get(c.Subject.Name)
	room, refusal := roomForPerson(s, known)
	if refusal != nil {
		return refusal
	}
	if room != nil {
		s.delPerson(room.Subject.Name)
	}
	next := &Person{Subject: c.Subject, Key: c.Key, NotAfter: c.NotAfter, Number: c.Number, Creator: s.entry.actor,
		IssuedIndex: s.Index}
	before := ""
	if known {
		next.VoidBefore = old.VoidBefore
		if old.RevokedIndex != 0 {
			before = "revoked"
		}
	}
	s.putPerson(next)
	s.touch("people")
	s.emit(Event{Type: model.EventPersonJoined, Subject: "member/" + c.Subject.String(), Before: before, After: "joined"})
	return nil
}

func (c *PersonAdmit) check(s *State) *model.Error {
	if refusal := checkPerson(c.Subject); refusal != nil {
		return refusal
	}
	old, known := s.People.Get(c.Subject.Name)
	switch {
	case len(c.Key) != sha256.Size:
		return model.Refuse(model.CodeInvalid, "the hash of the key of %s has %d bytes, not %d", c.Subject, len(c.Key),
			sha256.Size)
	case c.NotAfter <= 0:
		return model.Refuse(model.CodeInvalid, "the certificate of %s has the end %d", c.Subject, c.NotAfter)
	case known && old.RevokedIndex != 0 && bytes.Equal(old.Key, c.Key):
		return model.Refuse(model.CodeMemberRevoked, "%s was revoked together with this key", c.Subject).
			WithHint("make the certificate with a new key")
	case s.PersonVoid(c.Subject.Name, c.Number):
		return model.Refuse(model.CodeStale, "the certificates of %s were revoked while this one was made", c.Subject).
			WithHint("make another one: outspan cert create %s", c.Subject.Name)
	}
	return nil
}

func (c *PersonRevoke) apply(s *State) error {
	if refusal := checkPerson(c.Subject); refusal != nil {
		return refusal
	}
	old, known := s.People.Get(c.Subject.Name)
	switch {
	case len(c.Reason) > maxRevokeReason:
		return model.Refuse(model.CodeInvalid, "the reason has %d bytes, at most %d are allowed", len(c.Reason),
			maxRevokeReason)
	case !s.Managed():
		return model.Refuse(model.CodeNotFound, "the cluster has no CA, so it can't revoke %s", c.Subject).
			WithHint("only servers with tls { managed = true } can revoke certificates")
	case known && old.RevokedIndex != 0:
		return nil
	}
	room, refusal := roomForPerson(s, known)
	if refusal != nil {
		return refusal
	}
	if room != nil {
		s.delPerson(room.Subject.Name)
	}
	next := Person{Subject: c.Subject}
	if known {
		next = *old
	}
	next.RevokedIndex, next.Reason, next.VoidBefore = s.Index, c.Reason, s.MomentNumber()
	s.putPerson(&next)
	s.touch("people")
	s.emit(Event{Type: model.EventPersonRevoked, Subject: "member/" + c.Subject.String(), Before: "joined",
		After: "revoked", Data: map[string]string{"reason": c.Reason}})
	return nil
}

// voidPeople makes all certificates void that people have now; see RestoreMark.VoidPeople.
func voidPeople(s *State) {
	s.putPerson(&Person{Subject: model.Subject{Kind: model.SubjectCert, Name: everyone}, RevokedIndex: s.Index,
		VoidBefore: s.MomentNumber()})
	s.touch("people")
}

// roomForPerson returns the row to drop for a new name: nil while there is room. Otherwise it returns the row whose
// certificate ended first, at least memberKept ago. A row of a name that was ever revoked is never dropped, because its
// void certificates would count again. known says that the name has a row already. Code: conflict.
func roomForPerson(s *State, known bool) (*Person, *model.Error) {
	if known || s.People.Len() < maxPeople {
		return nil, nil
	}
	var first *Person
	for _, p := range s.People.All() {
		if p.VoidBefore == 0 && p.overdue(s.Wall) && (first == nil || p.NotAfter < first.NotAfter) {
			first = p
		}
	}
	if first == nil {
		return nil, model.Refuse(model.CodeConflict, "the cluster has certificates of %d people already", s.People.Len()).
			WithHint("give another certificate to one of them, or wait until certificates have expired for 90 days")
	}
	return first, nil
}

// overdue reports whether the person's newest certificate ended so long ago that the row may be dropped to make room.
func (p *Person) overdue(wall int64) bool { return wall-memberKept >= p.NotAfter }

// checkPerson refuses a subject that is no person, and a name that no certificate can have.
func checkPerson(who model.Subject) *model.Error {
	if who.Kind != model.SubjectCert {
		return model.Refuse(model.CodeInvalid, "people have the kind cert, not %q", model.ClipText(string(who.Kind), 100))
	}
	if n := len(who.Name); n == 0 || n > 128 || !personByte(who.Name[0], "") {
		return wrongPerson(who)
	}
	for i := range len(who.Name) {
		if !personByte(who.Name[i], "-_.@") {
			return wrongPerson(who)
		}
	}
	return nil
}

func personByte(c byte, also string) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(also, c) >= 0
}

func wrongPerson(who model.Subject) *model.Error {
	return model.Refuse(model.CodeInvalid, "the name %q of a person is not usable", model.ClipText(who.Name, 100)).
		WithHint("use 1 to 128 letters, digits, '-', '_', '.' or '@', starting with a letter or digit")
}
