package credential_test

import (
	"testing"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/credential"
	"flowlane/internal/fault"
	"flowlane/internal/provider"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("old"))
	r, err := b.service.Resolve(t.Context(), b.org, c.ID)
	if err != nil || r.ID != c.ID || r.OrgID != b.org || r.PlatformID != "dialer" || r.AuthMethod != credential.BasicAuth || r.TenancyID != *c.TenancyID || r.Status != credential.Active || r.Version != 1 {
		t.Fatalf("resolved = %+v, %v", r, err)
	}
	if !carries(t, r.Secret, "old") {
		t.Error("the secret's fields are not those that were stored")
	}
	_, err = b.service.Resolve(t.Context(), b.addOrg(t), c.ID)
	wantFault(t, err, fault.NotFound)
	_, err = b.service.Resolve(t.Context(), b.org, uuid.New())
	wantFault(t, err, fault.NotFound)
}

func TestResolve_SeesRotations(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("old"))
	other := b.newService(t)
	sees := func(s *credential.Service, password string, version int64) bool {
		r, err := s.Resolve(t.Context(), b.org, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		return carries(t, r.Secret, password) && r.Version == version
	}
	if !sees(b.service, "old", 1) || !sees(other, "old", 1) {
		t.Error("the first secret is not seen")
	}
	if _, err := b.service.Replace(t.Context(), b.org, c.ID, basic("new")); err != nil {
		t.Fatal(err)
	}
	if !sees(b.service, "new", 2) {
		t.Error("the process that rotated sees the old secret")
	}
	if !sees(other, "old", 1) {
		t.Error("the other process asked the database again at once")
	}
	b.clock.add(5 * time.Second)
	if !sees(other, "new", 2) {
		t.Error("after five seconds the other process sees the old secret")
	}
	in := basic("")
	in.Secret, in.Status = nil, credential.Revoked
	if _, err := b.service.Replace(t.Context(), b.org, c.ID, in); err != nil {
		t.Fatal(err)
	}
	if r, err := b.service.Resolve(t.Context(), b.org, c.ID); err != nil || r.Status != credential.Revoked {
		t.Errorf("resolved = %+v, %v", r, err)
	}
}

func TestObserve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("p"))
	start := b.clock.Now().Add(time.Hour)
	observe := func(after time.Duration, class string) {
		use := credential.Use{OrgID: b.org, CredentialID: c.ID, ServiceID: "dialer__api", At: start.Add(after), Failure: class}
		if err := b.service.Observe(t.Context(), b.pool, use); err != nil {
			t.Fatal(err)
		}
	}
	observe(0, "")
	observe(time.Second, "")                 // too soon to be written
	observe(2*time.Second, provider.Network) // another kind is written at once
	observe(40*time.Second, "")
	observe(-time.Minute, provider.Timeout) // late news change nothing
	read, err := b.service.Read(t.Context(), b.org, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	u := read.Uses[0]
	if !u.LastUsedAt.Equal(start.Add(40*time.Second)) || !u.LastSucceededAt.Equal(start.Add(40*time.Second)) ||
		!u.LastFailedAt.Equal(start.Add(2*time.Second)) || *u.LastFailureClass != "NETWORK" || u.LastStampedAt.IsZero() {
		t.Errorf("use = %+v", u)
	}
	if err := b.newService(t).Observe(t.Context(), b.pool, credential.Use{OrgID: b.addOrg(t), CredentialID: c.ID, ServiceID: "other", At: start}); err != nil {
		t.Fatal(err)
	}
	if read, err = b.service.Read(t.Context(), b.org, c.ID); err != nil || len(read.Uses) != 1 {
		t.Errorf("another organization's report was kept: %+v, %v", read.Uses, err)
	}
}

func BenchmarkResolve(b *testing.B) {
	s := setup(b)
	c := s.create(b, basic("p"))
	for name, step := range map[string]time.Duration{"held": 0, "read": time.Minute} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				s.clock.add(step)
				if _, err := s.service.Resolve(b.Context(), s.org, c.ID); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
