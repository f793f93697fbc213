package credential_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"flowlane/internal/fault"
	"flowlane/internal/platform/provider"
)

func TestTest_Failures(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const needle = "needle"
	c := b.create(t, basic(needle))
	for name, tc := range map[string]struct {
		account provider.Account
		err     error
		want    string
	}{
		"refused": {acme, &provider.ProbeError{Class: provider.AuthFailed, Details: "No."},
			provider.AuthFailed},
		"limited": {acme, &provider.ProbeError{Class: provider.RateLimitedClass, Details: "Later."},
			provider.RateLimitedClass},
		"unknown error":   {acme, errors.New("GET https://x/?key=" + needle), provider.UnknownClass},
		"another account": {provider.Account{Number: "2002"}, nil, provider.AuthFailed},
	} {
		b.prober.set(func(provider.Secret) (provider.Account, error) { return tc.account, tc.err })
		got, err := b.service.Test(t.Context(), b.org, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if got.Success || got.Failure != tc.want || got.Details == "" || strings.Contains(got.Details, needle) {
			t.Errorf("%s: %+v", name, got)
		}
		after, err := b.service.Read(t.Context(), b.org, c.ID)
		if err != nil || after.LastVerified != nil || *after.TenancyID != *c.TenancyID ||
			*after.Uses[0].LastFailureClass != tc.want {
			t.Errorf("%s: after = %+v, %v", name, after, err)
		}
	}
	_, err := b.service.Test(t.Context(), b.addOrg(t), c.ID)
	wantFault(t, err, fault.NotFound)
	_, err = b.service.Test(t.Context(), b.org, uuid.New())
	wantFault(t, err, fault.NotFound)
}

func TestTest_StoredSecretLacksAField(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("p"))
	tx, err := b.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.vault.Put(t.Context(), tx, b.org, c.ID, []byte(`{"username": "ann"}`)); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	calls := b.prober.calls
	got, err := b.service.Test(t.Context(), b.org, c.ID)
	if err != nil || got.Failure != provider.InvalidShape || !strings.Contains(got.Details, "password") ||
		b.prober.calls != calls {
		t.Errorf("outcome = %+v, %v", got, err)
	}
	if _, err := b.service.Resolve(t.Context(), b.org, c.ID); !errors.Is(err, provider.ErrSecretShape) {
		t.Errorf("Resolve: %v", err)
	}
}

// A test that began with the old secret says nothing about the one that a rotation stored meanwhile.
func TestTest_RotatedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.create(t, basic("old"))
	b.prober.set(func(secret provider.Secret) (provider.Account, error) {
		if carries(t, secret, "old") {
			if _, err := b.service.Replace(context.WithoutCancel(t.Context()), b.org, c.ID, basic("new")); err != nil {
				t.Error(err)
			}
		}
		return acme, nil
	})
	got, err := b.service.Test(t.Context(), b.org, c.ID)
	if err != nil || !got.Success {
		t.Errorf("outcome = %+v, %v", got, err)
	}
	after, err := b.service.Read(t.Context(), b.org, c.ID)
	if err != nil || after.LastVerified != nil {
		t.Errorf("after = %+v, %v", after, err)
	}
}
