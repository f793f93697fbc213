package account

import (
	"strings"
	"testing"
	"time"

	"flowlane/gen/db"
)

func TestGrant_Holds(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		held, scope string
		want        bool
	}{
		{"*", "jobs:write", true},
		{"jobs:read", "jobs:read", true},
		{"jobs:write", "jobs:write", true},
		{"jobs:write", "jobs:read", true},
		{"jobs:read", "jobs:write", false},
		{"stores:write jobs:read", "jobs:read", true},
		{"stores:write jobs:read", "jobs:write", false},
		{"record-sets:write", "sets:read", false},
		{"jobs:write", "", false},
		{"", "jobs:read", false},
	} {
		g := Grant{Scopes: strings.Fields(tt.held)}
		if tt.held == "*" {
			g.Scopes = nil
		}
		if got := g.Holds(tt.scope); got != tt.want {
			t.Errorf("%q holds %q: %t", tt.held, tt.scope, got)
		}
	}
}

func TestNewKey_Beyond(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_700_000_000, 0)
	later := now.Add(time.Second)
	for _, tt := range []struct {
		name  string
		maker db.ApiKeyMakerRow
		key   NewKey
		want  string
	}{
		{"Whole", db.ApiKeyMakerRow{Role: "admin"}, NewKey{Grant: Grant{Role: Admin}}, ""},
		{"Less", db.ApiKeyMakerRow{Role: "admin"}, NewKey{Grant: Grant{Role: Member, Scopes: []string{"jobs:read"}},
			ExpiresAt: &now}, ""},
		{"Equal", db.ApiKeyMakerRow{Role: "member", ExpiresAt: &now}, NewKey{Grant: Grant{Role: Member},
			ExpiresAt: &now}, ""},
		{"Role", db.ApiKeyMakerRow{Role: "member"}, NewKey{Grant: Grant{Role: Admin}}, "role"},
		{"NoScopes", db.ApiKeyMakerRow{Role: "admin", Scopes: []string{"jobs:read"}}, NewKey{Grant: Grant{Role: Admin}},
			"scopes"},
		{"Scope", db.ApiKeyMakerRow{Role: "admin", Scopes: []string{"jobs:write"}},
			NewKey{Grant: Grant{Role: Admin, Scopes: []string{"jobs:read", "stores:read", "jobs:write", "usage:read"}}},
			"scopes.1 scopes.3"},
		{"Later", db.ApiKeyMakerRow{Role: "admin", ExpiresAt: &now}, NewKey{Grant: Grant{Role: Admin},
			ExpiresAt: &later}, "expires_at"},
		{"Never", db.ApiKeyMakerRow{Role: "admin", ExpiresAt: &now}, NewKey{Grant: Grant{Role: Admin}}, "expires_at"},
		{"All", db.ApiKeyMakerRow{Role: "member", Scopes: []string{"jobs:read"}, ExpiresAt: &now},
			NewKey{Grant: Grant{Role: Admin}}, "role scopes expires_at"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var places []string
			for _, f := range tt.key.beyond(tt.maker) {
				places = append(places, strings.Join(f.Loc[1:], "."))
			}
			if got := strings.Join(places, " "); got != tt.want {
				t.Errorf("refused for %q, want %q", got, tt.want)
			}
		})
	}
}
