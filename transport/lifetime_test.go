package transport

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
	"time"
)

func TestNearEnd(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	for _, tt := range []struct {
		age, left time.Duration
		want      bool
	}{
		{365 * day, 20 * day, false},
		{365 * day, 13 * day, true},
		{365 * day, -time.Hour, true},
		{2 * day, 28 * day, false},
		{time.Hour, 23 * time.Hour, false}, // more than a third of a short life is left
		{23 * time.Hour, time.Hour, true},
	} {
		life := Lifetime{From: now.Add(-tt.age), Until: now.Add(tt.left)}
		if got := life.NearEnd(now); got != tt.want {
			t.Errorf("%s old, %s left: %v, want %v", tt.age, tt.left, got, tt.want)
		}
	}
	if (Lifetime{}).NearEnd(now) {
		t.Error("what is not known ends")
	}
}

// The time before the creation of a certificate is no part of its life. Otherwise a short-lived certificate would count
// as old from the beginning.
func TestLifetimeBeginsAtCreation(t *testing.T) {
	ca, err := NewAuthority("c1", 0)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	for _, ttl := range []time.Duration{time.Hour, 30 * 24 * time.Hour} {
		certPEM, _, err := ca.Issue(CertRequest{Role: "agent", Name: "n1", TTL: ttl})
		if err != nil {
			t.Fatal(err)
		}
		block, _ := pem.Decode(certPEM)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			t.Fatal(err)
		}
		life := LifetimeOf(cert)
		if off := life.From.Sub(now).Abs(); off > time.Minute || life.NearEnd(now.Add(ttl/2)) ||
			!life.NearEnd(now.Add(ttl*3/4)) {
			t.Errorf("a certificate for %s made at %s: from %s until %s", ttl, now, life.From, life.Until)
		}
	}
	foreign := &x509.Certificate{NotBefore: now, NotAfter: now.Add(12 * time.Hour)}
	if life := LifetimeOf(foreign); !life.From.Equal(now) {
		t.Errorf("a certificate of another CA begins at %s, not %s", life.From, now)
	}
}
