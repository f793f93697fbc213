package account_test

import (
	"bytes"
	"encoding/base64"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"flowlane/internal/account"
	"flowlane/internal/fault"
	"flowlane/test/pgtest"
)

func (b bundle) streamToken(t *testing.T, c account.Caller, resource string) string {
	t.Helper()
	text, expires, err := b.svc.CreateStreamToken(t.Context(), c, resource)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(expires); left > account.StreamTokenLife || left < account.StreamTokenLife-time.Minute {
		t.Errorf("the token lives for %s", left)
	}
	return text
}

func refusesStream(t *testing.T, svc *account.Service, text, why string) {
	t.Helper()
	if c, err := svc.AuthenticateStreamToken(t.Context(), text); !fault.Is(err, fault.Unauthenticated) {
		t.Errorf("%s: got caller %+v, error %v", why, c, err)
	}
}

func TestStreamToken(t *testing.T) {
	t.Parallel()
	b := setup(t)
	key, row := b.key(t, nil)
	caller := account.Caller{OrgID: b.org.ID, AccountID: b.org.AccountID, KeyID: row.ID,
		Grant: account.Grant{Role: account.Admin, Scopes: []string{"executions:read"}}}
	for _, resource := range []string{"", "0192f0c1-7c3e-7a52-9d3b-5d5b0c6f1a11.17.1"} {
		text := b.streamToken(t, caller, resource)
		if text == b.streamToken(t, caller, resource) {
			t.Error("two tokens are the same")
		}
		want := account.Caller{OrgID: b.org.ID, AccountID: b.org.AccountID, KeyID: row.ID,
			Grant: account.Grant{Role: account.Member}, Resource: resource}
		for _, svc := range []*account.Service{b.svc, service(t, b, bytes.Repeat([]byte{9}, 32), hashKey)} {
			if got, err := svc.AuthenticateStreamToken(t.Context(), text); err != nil || !reflect.DeepEqual(got, want) {
				t.Errorf("caller %+v, error %v, want %+v", got, err, want)
			}
		}
		refusesStream(t, service(t, b, bytes.Repeat([]byte{8}, 32)), text, "a token under another hash key")
		mustFail(t, b.svc, text, "a stream token as an API key")
	}
	refusesStream(t, b.svc, key, "an API key as a stream token")
	if _, _, err := b.svc.CreateStreamToken(t.Context(), caller, strings.Repeat("x", 256)); !fault.Is(err,
		fault.Unprocessable) {
		t.Errorf("a long resource: %v", err)
	}
}

// TestStreamToken_AnyChange flips every bit, cuts and lengthens.
func TestStreamToken_AnyChange(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text := b.streamToken(t, account.Caller{OrgID: b.org.ID, AccountID: b.org.AccountID}, "x")
	body := strings.TrimPrefix(text, account.StreamTokenPrefix)
	raw, err := base64.RawURLEncoding.DecodeString(body)
	if err != nil {
		t.Fatal(err)
	}
	for i := range len(raw) * 8 {
		changed := bytes.Clone(raw)
		changed[i/8] ^= 1 << (i % 8)
		refusesStream(t, b.svc, account.StreamTokenPrefix+base64.RawURLEncoding.EncodeToString(changed),
			"a flipped bit")
	}
	for i := range len(text) {
		refusesStream(t, b.svc, text[:i], "a cut token")
	}
	for _, other := range []string{text + "A", text + "=", body, "flow_" + body, text + "\n",
		strings.Repeat(text, 20)} {
		refusesStream(t, b.svc, other, other)
	}
	if _, err := b.svc.AuthenticateStreamToken(t.Context(), text); err != nil {
		t.Errorf("the token itself: %v", err)
	}
}

func TestStreamToken_Ends(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, b bundle, keyID uuid.UUID){
		"Expired": func(t *testing.T, b bundle, _ uuid.UUID) { pgtest.MoveClock(t, b.pool, account.StreamTokenLife) },
		"Revoked": func(t *testing.T, b bundle, keyID uuid.UUID) {
			if _, err := service(t, b, hashKey).RevokeKey(t.Context(), b.org.ID, keyID, false, 1); err != nil {
				t.Fatal(err)
			}
		},
		"Suspended": func(t *testing.T, b bundle, _ uuid.UUID) {
			if _, err := b.pool.Exec(t.Context(), `UPDATE flow.organization SET status = 'suspended' WHERE id = $1`,
				b.org.ID); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t)
			_, row := b.key(t, nil)
			text := b.streamToken(t, account.Caller{OrgID: b.org.ID, AccountID: b.org.AccountID, KeyID: row.ID}, "")
			if _, err := b.svc.AuthenticateStreamToken(t.Context(), text); err != nil {
				t.Fatal(err)
			}
			end(t, b, row.ID)
			b.clock.advance(time.Second)
			refusesStream(t, b.svc, text, "a second after the end")
		})
	}
	b := setup(t)
	_, row := b.key(t, nil)
	text := b.streamToken(t, account.Caller{OrgID: b.org.ID, AccountID: b.org.AccountID, KeyID: row.ID}, "")
	if _, err := b.svc.AuthenticateStreamToken(t.Context(), text); err != nil {
		t.Fatal(err)
	}
	if _, err := b.svc.RevokeKey(t.Context(), b.org.ID, row.ID, false, 1); err != nil {
		t.Fatal(err)
	}
	refusesStream(t, b.svc, text, "the replica that revoked the key, at once")
	refusesStream(t, b.svc, b.streamToken(t, account.Caller{OrgID: b.org.ID, AccountID: b.org.AccountID,
		KeyID: uuid.New()}, ""), "a key that never was")
	refusesStream(t, b.svc, b.streamToken(t, account.Caller{OrgID: uuid.New(), AccountID: b.org.AccountID}, ""),
		"an organization that never was")
}
