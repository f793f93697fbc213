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

func TestReplace_RotatesInPlace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	before := b.create(t, basic("old"))
	if _, err := b.service.Test(t.Context(), b.org, before.ID); err != nil {
		t.Fatal(err)
	}
	in := basic("new")
	in.Name, in.Scopes, in.Audience = "Renamed", []string{"a", "b"}, ptr("aud")
	after, err := b.service.Replace(t.Context(), b.org, before.ID, in)
	if err != nil {
		t.Fatal(err)
	}
	if after.ID != before.ID || after.Ref() != before.Ref() || *after.TenancyID != *before.TenancyID ||
		after.CreatedBy != before.CreatedBy || !after.CreatedAt.Equal(before.CreatedAt) {
		t.Errorf("after = %+v, before = %+v", after, before)
	}
	if after.Name != "Renamed" || len(after.Scopes) != 2 || *after.Audience != "aud" || after.LastVerified != nil {
		t.Errorf("after = %+v", after)
	}
	if got := b.password(t, before.ID); got != "new" {
		t.Errorf("password = %q", got)
	}
}

func TestReplace_WithoutSecretKeepsIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("keep"))
	if _, err := b.service.Test(t.Context(), b.org, c.ID); err != nil {
		t.Fatal(err)
	}
	calls := b.prober.calls
	in := basic("")
	in.Name, in.Secret = "Renamed", nil
	after, err := b.service.Replace(t.Context(), b.org, c.ID, in)
	if err != nil {
		t.Fatal(err)
	}
	if after.Name != "Renamed" || after.LastVerified == nil || after.TenancyID == nil || b.prober.calls != calls {
		t.Errorf("after = %+v; %d calls more", after, b.prober.calls-calls)
	}
	if got := b.password(t, c.ID); got != "keep" {
		t.Errorf("password = %q", got)
	}
}

func TestReplace_Status(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("p"))
	for i, tc := range []struct {
		status  string
		rotates bool
		want    string
	}{
		{credential.Expired, false, credential.Expired},
		{"", true, credential.Expired}, // a rotation keeps the stored one
		{credential.Revoked, true, credential.Revoked},
		{"", false, credential.Active}, // anything else sets the default
	} {
		in := basic("p")
		in.Status = tc.status
		if !tc.rotates {
			in.Secret = nil
		}
		after, err := b.service.Replace(t.Context(), b.org, c.ID, in)
		if err != nil || after.Status != tc.want {
			t.Errorf("%d: status = %v, %v; want %s", i, after, err, tc.want)
		}
	}
}

func TestReplace_Refused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("old"))
	if _, err := b.service.Test(t.Context(), b.org, c.ID); err != nil {
		t.Fatal(err)
	}
	before, err := b.service.Read(t.Context(), b.org, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	otherUser, otherPlatform, unknownPlatform := basic("new"), keyed("k"), basic("new")
	otherUser.Name, otherUser.Secret = "Changed", []byte(`{"username": "bob", "password": "new"}`)
	unknownPlatform.PlatformID = "nowhere"
	elsewhere := provider.Account{Number: "2002", Name: "Other"}
	for name, tc := range map[string]struct {
		org     uuid.UUID
		in      credential.Input
		account provider.Account
		want    fault.Code
	}{
		"another account":      {b.org, basic("new"), elsewhere, fault.Conflict},
		"another user":         {b.org, otherUser, acme, fault.Conflict},
		"another platform":     {b.org, otherPlatform, acme, fault.Invalid},
		"unknown platform":     {b.org, unknownPlatform, acme, fault.Invalid},
		"another organization": {b.addOrg(t), basic("new"), acme, fault.NotFound},
	} {
		b.prober.answer(tc.account)
		tc.in.Status = credential.Revoked
		_, err := b.service.Replace(t.Context(), tc.org, c.ID, tc.in)
		wantFault(t, err, tc.want)
		after, err := b.service.Read(t.Context(), b.org, c.ID)
		if err != nil || after.Name != before.Name || after.Status != before.Status ||
			!after.LastVerified.Equal(*before.LastVerified) || !after.UpdatedAt.Equal(before.UpdatedAt) {
			t.Errorf("%s: after = %+v, %v", name, after, err)
		}
		if got := b.password(t, c.ID); got != "old" {
			t.Errorf("%s: password = %q", name, got)
		}
	}
	var domains int
	if err := b.pool.QueryRow(t.Context(), "SELECT count(*) FROM flow.domain").Scan(&domains); err != nil ||
		domains != 1 {
		t.Errorf("%d domains, %v: a refused account was stored", domains, err)
	}
}

func TestReplace_PlatformDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("old"))
	b.prober.refuse(provider.Network)
	after, err := b.service.Replace(t.Context(), b.org, c.ID, basic("new"))
	if err != nil || after.TenancyID == nil || *after.TenancyID != *c.TenancyID || after.LastVerified != nil {
		t.Errorf("after = %+v, %v", after, err)
	}
	if got := b.password(t, c.ID); got != "new" {
		t.Errorf("password = %q", got)
	}
}

// While a rotation waits for the platform, another one binds the credential to an account: the second must look again.
func TestReplace_AccountAppearsMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.prober.refuse(provider.Network)
	c := b.create(t, basic("first"))
	b.prober.set(func(secret provider.Secret) (provider.Account, error) {
		if carries(t, secret, "slow") {
			if _, err := b.service.Replace(context.WithoutCancel(t.Context()), b.org, c.ID, basic("fast")); err != nil {
				t.Error(err)
			}
			return provider.Account{Number: "2002"}, nil
		}
		return acme, nil
	})
	_, err := b.service.Replace(t.Context(), b.org, c.ID, basic("slow"))
	wantFault(t, err, fault.Conflict)
	if got := b.password(t, c.ID); got != "fast" {
		t.Errorf("password = %q", got)
	}
}

func TestReplace_KeyPlacement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, keyed("k1"))
	if p := c.Placement(); p == nil || *p.HeaderName != "Authorization" || *p.Scheme != "Bearer" ||
		p.QueryParam != nil {
		t.Errorf("placement = %+v", p)
	}
	in := keyed("")
	in.Secret, in.Placement = nil, &credential.Placement{QueryParam: ptr("key")}
	_, err := b.service.Replace(t.Context(), b.org, c.ID, in)
	wantFault(t, err, fault.Unprocessable)
	in.Secret = keyed("k1").Secret
	after, err := b.service.Replace(t.Context(), b.org, c.ID, in)
	if err != nil || *after.Placement().QueryParam != "key" || after.Placement().HeaderName != nil {
		t.Errorf("after = %+v, %v", after, err)
	}
	in.Placement = nil
	_, err = b.service.Replace(t.Context(), b.org, c.ID, in)
	wantFault(t, err, fault.Unprocessable)
}

func TestCredential_DatabaseKeepsWhatNeverChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.create(t, basic("p"))
	b.prober.answer(provider.Account{Number: "2002"})
	b.create(t, basic("p"))
	for _, change := range []string{
		"UPDATE flow.credential SET platform_id = 'core'",
		"UPDATE flow.credential SET tenancy_id = NULL",
		"UPDATE flow.credential c SET tenancy_id = (SELECT max(tenancy_id) FROM flow.domain d " +
			"WHERE d.tenancy_id <> c.tenancy_id)",
		"UPDATE flow.credential SET placement_header = 'X-Key'",
		"UPDATE flow.credential SET status = 'gone'",
	} {
		if _, err := b.pool.Exec(t.Context(), change); err == nil {
			t.Errorf("passed: %s", change)
		}
	}
}

func TestTest_Success(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.prober.refuse(provider.Timeout)
	c := b.create(t, basic("p"))
	began := b.clock.Now().Add(time.Minute)
	b.clock.add(time.Minute)
	b.prober.set(func(provider.Secret) (provider.Account, error) {
		b.clock.add(250 * time.Millisecond)
		return acme, nil
	})
	got, err := b.service.Test(t.Context(), b.org, c.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !got.Success || got.Failure != "" || got.Details == "" || got.Latency != 250*time.Millisecond ||
		!got.TestedAt.Equal(began) {
		t.Errorf("outcome = %+v", got)
	}
	after, err := b.service.Read(t.Context(), b.org, c.ID)
	if err != nil || after.LastVerified == nil || !after.LastVerified.Equal(began) || after.TenancyID == nil {
		t.Errorf("after = %+v, %v", after, err)
	}
	if u := after.Uses[0]; !u.LastUsedAt.Equal(began) || !u.LastSucceededAt.Equal(began) ||
		!u.LastFailedAt.Equal(began.Add(-time.Minute)) || *u.LastFailureClass != "TIMEOUT" {
		t.Errorf("use = %+v", u)
	}
}
