package account

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"flowlane/gen/db"
	"flowlane/internal/cell"
	"flowlane/internal/fault"
	"flowlane/internal/pg"
)

const (
	// tokenLeeway is how far the provider's clock and ours may differ.
	tokenLeeway = 30 * time.Second
	// maxToken is the length of the longest token that is looked at, in bytes.
	maxToken = 16 << 10
	// maxSubject bounds the subject and the organization of a token, maxName the name that its account takes.
	maxSubject = 255
	maxName    = 200
)

// TokenConfig says whose bearer tokens are taken, and how they are read. All fields are required.
type TokenConfig struct {
	// Issuer and Audience must be those of the token (one of its audiences).
	Issuer, Audience string
	// OrgClaim is the claim that holds the id of the organization, or the provider's name for it (external_id).
	OrgClaim string
	// RoleClaim is the claim that holds the role or a list of roles; with AdminRole among them the caller is an admin,
	// else a member.
	RoleClaim, AdminRole string
	// ClientID is what the console is called at the provider, the audience of its ID tokens; empty where nobody signs
	// in there.
	ClientID string
	// FetchKeys reads the provider's JWK Set. It must be bounded in size; its time ends with ctx.
	FetchKeys func(ctx context.Context) ([]byte, error)
}

func (c TokenConfig) check() error {
	for _, text := range []string{c.Issuer, c.Audience, c.OrgClaim, c.RoleClaim, c.AdminRole} {
		if text == "" {
			return errors.New("account: bearer tokens need an issuer, an audience, the claims of organization " +
				"and role, and the name of the admin role")
		}
	}
	if c.FetchKeys == nil {
		return errors.New("account: bearer tokens need the provider's keys")
	}
	return nil
}

// tokens checks bearer tokens.
type tokens struct {
	TokenConfig

	parser *jwt.Parser
	// idParser checks ID tokens; nil where nobody signs in.
	idParser *jwt.Parser
	keys     keyfunc.Keyfunc
	cache    *cache
}

func newTokens(cfg Config) (*tokens, error) {
	c := *cfg.Tokens
	keys, err := keyfunc.New(keyfunc.Options{
		Storage: &keySet{MemoryJWKSet: jwkset.NewMemoryStorage(), fetch: c.FetchKeys, now: cfg.Now, log: cfg.Log},
	})
	if err != nil {
		return nil, fmt.Errorf("account: %w", err)
	}
	parser := func(audience string) *jwt.Parser {
		// The method is checked before anything is looked up: a token that names another one has no key.
		return jwt.NewParser(jwt.WithValidMethods([]string{"RS256"}), jwt.WithIssuer(c.Issuer),
			jwt.WithAudience(audience),
			jwt.WithExpirationRequired(), jwt.WithLeeway(tokenLeeway), jwt.WithTimeFunc(cfg.Now),
			jwt.WithStrictDecoding())
	}
	t := &tokens{TokenConfig: c, parser: parser(c.Audience), keys: keys, cache: newCache(cfg.Now)}
	if c.ClientID != "" {
		t.idParser = parser(c.ClientID)
	}
	return t, nil
}

// AuthenticateToken returns the caller whose bearer token this is, from memory if it was checked within the last
// second. An account is made for a subject that was never here before. The text of a session is such a token, too.
// Faults: Unauthenticated, in a RefusalError, for a token that is not good for whatever reason, and for one whose
// organization is unknown or suspended; Unavailable while nobody can tell because the identity provider's keys cannot
// be read.
func (s *Service) AuthenticateToken(ctx context.Context, token string) (Caller, error) {
	if strings.HasPrefix(token, sessionPrefix) || strings.HasPrefix(token, linkPrefix) {
		return s.authenticateSession(ctx, token)
	}
	if s.tokens == nil || len(token) > maxToken {
		return Caller{}, refused(badToken)
	}
	return s.tokens.cache.get(ctx, sha256.Sum256([]byte(token)), func(ctx context.Context) (Caller, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), loadTimeout+keysTimeout)
		defer cancel()
		c, err := s.tokens.verify(ctx, token)
		if err != nil {
			var f *fault.Error
			if errors.As(err, &f) && f.Code == fault.Unavailable {
				return Caller{}, f
			}
			s.cfg.Log.DebugContext(ctx, "a bearer token was refused", "error", err)
			return Caller{}, refused(badToken)
		}
		return s.callerOf(ctx, c)
	})
}

// claims are what a good token says.
type claims struct {
	organization, subject, name string
	role                        Role
}

// verify checks a bearer token, and reads it.
func (t *tokens) verify(ctx context.Context, text string) (claims, error) {
	said, err := t.parse(ctx, t.parser, text)
	if err != nil {
		return claims{}, err
	}
	return t.read(said)
}

// parse checks a token by one of the parsers.
func (t *tokens) parse(ctx context.Context, parser *jwt.Parser, text string) (jwt.MapClaims, error) {
	said := jwt.MapClaims{}
	_, err := parser.ParseWithClaims(text, said, func(token *jwt.Token) (any, error) {
		if _, critical := token.Header["crit"]; critical {
			return nil, errors.New("the token has critical extensions, of which none is known")
		}
		if id, _ := token.Header["kid"].(string); id == "" {
			return nil, errors.New("the token names no key")
		}
		return t.keys.KeyfuncCtx(ctx)(token)
	})
	if err != nil {
		return nil, fmt.Errorf("check a token: %w", err)
	}
	return said, nil
}

// read is what a good token says.
func (t *tokens) read(said jwt.MapClaims) (claims, error) {
	c := claims{organization: textOf(said[t.OrgClaim]), subject: textOf(said["sub"]), role: Member}
	if c.organization == "" || c.subject == "" {
		return claims{}, fmt.Errorf("the token has no usable claim %q or no usable subject", t.OrgClaim)
	}
	if slices.Contains(rolesOf(said[t.RoleClaim]), t.AdminRole) {
		c.role = Admin
	}
	c.name = nameOf(textOf(said["name"]), textOf(said["email"]), c.subject)
	return c, nil
}

// textOf is a claim that can be stored; empty for any other.
func textOf(claim any) string {
	text, _ := claim.(string)
	if len(text) > maxSubject || strings.ContainsRune(text, 0) {
		return ""
	}
	return text
}

// rolesOf reads a role or a list of roles.
func rolesOf(claim any) (roles []string) {
	switch c := claim.(type) {
	case string:
		return []string{c}
	case []any:
		for _, r := range c {
			if text, ok := r.(string); ok {
				roles = append(roles, text)
			}
		}
	}
	return roles
}

// nameOf is the first of these that says something.
func nameOf(candidates ...string) string {
	for _, text := range candidates {
		if text = strings.TrimSpace(text); text != "" {
			runes := []rune(text)
			return string(runes[:min(len(runes), maxName)])
		}
	}
	return "User"
}

// callerOf finds the organization and the account of a token's subject.
func (s *Service) callerOf(ctx context.Context, c claims) (Caller, error) {
	q := db.New()
	in := db.TokenAuthParams{Issuer: &s.tokens.Issuer, Subject: &c.subject, Organization: &c.organization}
	if id, err := uuid.Parse(c.organization); err == nil && id.String() == c.organization {
		in.OrganizationID = &id
	}
	row, err := q.TokenAuth(ctx, s.cfg.Pool, in)
	names := [][]byte{[]byte(c.organization)}
	if in.OrganizationID != nil {
		names = append(names, in.OrganizationID[:])
	}
	if pg.IsNoRows(err) {
		return Caller{}, s.refuseOrLead(ctx, refused(unknownOrg), names...)
	}
	if err != nil {
		return Caller{}, fmt.Errorf("look up the organization of a token: %w", err)
	}
	if !row.Usable {
		r := &RefusalError{Reason: suspended, OrgID: row.OrgID}
		if row.AccountID != nil {
			r.AccountID = *row.AccountID
		}
		return Caller{}, s.refuseOrLead(ctx, r, names...)
	}
	limits, err := requestLimits(row.RequestLimits)
	if err != nil {
		return Caller{}, err
	}
	caller := Caller{OrgID: row.OrgID, Grant: Grant{Role: c.role}, RequestLimits: limits}
	if row.AccountID != nil && *row.AccountName == c.name {
		caller.AccountID = *row.AccountID
		return caller, nil
	}
	id := cell.NewID()
	caller.AccountID, err = q.AccountOfSubject(ctx, s.cfg.Pool, db.AccountOfSubjectParams{
		ID: id, OrgID: row.OrgID, Name: c.name, Issuer: &s.tokens.Issuer, Subject: &c.subject,
	})
	if err != nil {
		return Caller{}, fmt.Errorf("store the account of a token: %w", err)
	}
	return caller, nil
}
