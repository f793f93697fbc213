package credential_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/fault"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/provider"
)

func TestResolve(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("old"))
	r, err := b.service.Resolve(t.Context(), b.org, c.ID)
	if err != nil || r.ID != c.ID || r.OrgID != b.org || r.PlatformID != "dialer" ||
		r.AuthMethod != credential.BasicAuth || r.TenancyID != *c.TenancyID || r.Status != credential.Active ||
		r.Version != 1 {
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
	// Each use with what the record says after it, in seconds since start.
	for _, tc := range []struct {
		after                   float64
		class                   string
		used, succeeded, failed float64
		last                    string
	}{
		{0, "", 0, 0, -1, ""},
		{10, "", 0, 0, -1, ""},                              // nothing new: too soon to be written
		{11, provider.Network, 11, 0, 11, provider.Network}, // another kind is written at once
		{12, provider.AuthFailed, 12, 0, 12, provider.AuthFailed},
		{13, provider.AuthFailed, 12, 0, 12, provider.AuthFailed},
		{14, "", 14, 14, 12, provider.AuthFailed}, // as is the end of the failures
		{14.5, provider.AuthFailed, 14.5, 14, 14.5, provider.AuthFailed},
		{14.6, "", 14.5, 14, 14.5, provider.AuthFailed}, // but kinds that take turns are not written without end
		{40, "", 40, 40, 14.5, provider.AuthFailed},
		{-60, provider.Timeout, 40, 40, 14.5, provider.AuthFailed}, // late news change nothing
	} {
		use := credential.Use{OrgID: b.org, CredentialID: c.ID, ServiceID: "dialer__api",
			At: start.Add(seconds(tc.after)), Failure: tc.class}
		if err := b.service.Observe(t.Context(), use); err != nil {
			t.Fatal(err)
		}
		read, err := b.service.Read(t.Context(), b.org, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		u := read.Uses[0]
		if !u.LastUsedAt.Equal(start.Add(seconds(tc.used))) ||
			!u.LastSucceededAt.Equal(start.Add(seconds(tc.succeeded))) || u.LastStampedAt.IsZero() {
			t.Errorf("after %v %s: use = %+v", tc.after, tc.class, u)
		}
		if tc.last == "" {
			if u.LastFailedAt != nil || u.LastFailureClass != nil {
				t.Errorf("after %v: failed at %v, %v", tc.after, u.LastFailedAt, *u.LastFailureClass)
			}
		} else if u.LastFailedAt == nil || !u.LastFailedAt.Equal(start.Add(seconds(tc.failed))) ||
			*u.LastFailureClass != tc.last {
			t.Errorf("after %v %s: failed at %v, %v", tc.after, tc.class, u.LastFailedAt, u.LastFailureClass)
		}
	}
	if err := b.newService(t).Observe(t.Context(), credential.Use{OrgID: b.addOrg(t), CredentialID: c.ID,
		ServiceID: "other", At: start}); err != nil {
		t.Fatal(err)
	}
	if read, err := b.service.Read(t.Context(), b.org, c.ID); err != nil || len(read.Uses) != 1 {
		t.Errorf("another organization's report was kept: %+v, %v", read.Uses, err)
	}
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

func TestObserve_FailedWriteIsMadeUpFor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("p"))
	use := credential.Use{OrgID: b.org, CredentialID: c.ID, ServiceID: "dialer__api", At: b.clock.Now().Add(time.Hour)}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.service.Observe(gone, use); err == nil {
		t.Fatal("written without a database")
	}
	use.At = use.At.Add(time.Second)
	if err := b.service.Observe(t.Context(), use); err != nil {
		t.Fatal(err)
	}
	if read, err := b.service.Read(t.Context(), b.org, c.ID); err != nil || !read.Uses[0].LastUsedAt.Equal(use.At) {
		t.Errorf("uses = %+v, %v", read.Uses, err)
	}
}

// BenchmarkObserve is the cost that a call has: all but one in many thousands say nothing new.
func BenchmarkObserve(b *testing.B) {
	s := setup(b)
	c := s.create(b, basic("p"))
	use := credential.Use{OrgID: s.org, CredentialID: c.ID, ServiceID: "dialer__api", At: s.clock.Now()}
	for b.Loop() {
		if err := s.service.Observe(b.Context(), use); err != nil {
			b.Fatal(err)
		}
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
