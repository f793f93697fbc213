package api

import (
	"context"
	"strings"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
)

// credentialHandler serves /credentials.
type credentialHandler struct {
	credentials *credential.Service
	// publicURL gives the address under which people reach the service.
	publicURL func() string
}

func (h credentialHandler) ListCredentials(ctx context.Context,
	params oas.ListCredentialsParams) (*oas.CredentialList, error) {
	caller := account.FromContext(ctx)
	when := created{params.Order, params.CreatedAfter, params.CreatedBefore}
	p, err := pageOf("credentials", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Status.Value, "\x00",
		params.Name,
		"\x00", params.PlatformID, "\x00", when)
	if err != nil {
		return nil, err
	}
	whole, at, err := p.of(when)
	if err != nil {
		return nil, err
	}
	rows, total, err := h.credentials.List(ctx, caller.OrgID, credential.Filter{
		Status: optional(params.Status.Value, params.Status.Set), Name: params.Name.Value, Created: whole,
		PlatformID: optional(params.PlatformID.Value, params.PlatformID.Set),
	}, at)
	if err != nil {
		return nil, err
	}
	key := func(c *credential.Credential) string { return c.ID.String() }
	list := oas.CredentialList(listOf(p, rows, total, key, credentialOf))
	return &list, nil
}

func (h credentialHandler) CreateCredential(ctx context.Context, req *oas.CredentialCreate,
	params oas.CreateCredentialParams) (*oas.Credential, error) {
	caller := account.FromContext(ctx)
	in := createdCredential(req, params.Verify)
	return answerCredential(h.credentials.Create(ctx, caller.OrgID, caller.AccountID.String(), in,
		keepCreated(answerCredential)))
}

func (h credentialHandler) GetCredential(ctx context.Context, params oas.GetCredentialParams) (*oas.Credential, error) {
	id, err := pathID("Credential", params.CredentialID)
	if err != nil {
		return nil, err
	}
	return answerCredential(h.credentials.Read(ctx, account.FromContext(ctx).OrgID, id))
}

func (h credentialHandler) ReplaceCredential(ctx context.Context, req *oas.CredentialUpdate,
	params oas.ReplaceCredentialParams) (*oas.Credential, error) {
	id, err := pathID("Credential", params.CredentialID)
	if err != nil {
		return nil, err
	}
	return answerCredential(h.credentials.Replace(ctx, account.FromContext(ctx).OrgID, id, replacedCredential(req,
		params.Verify)))
}

func (h credentialHandler) SetCredentialLimits(ctx context.Context, req *oas.CredentialLimits,
	params oas.SetCredentialLimitsParams) (*oas.Credential, error) {
	id, err := pathID("Credential", params.CredentialID)
	if err != nil {
		return nil, err
	}
	limits := catalog.Limits{MaxInFlight: req.MaxInFlight.Or(0)}
	for _, w := range req.Windows {
		limits.Windows = append(limits.Windows, catalog.Window{Seconds: w.Seconds, Calls: w.Calls,
			Kind: string(w.Kind)})
	}
	return answerCredential(h.credentials.SetLimits(ctx, account.FromContext(ctx).OrgID, id, limits))
}

func (h credentialHandler) DeleteCredential(ctx context.Context, params oas.DeleteCredentialParams) error {
	id, err := pathID("Credential", params.CredentialID)
	if err != nil {
		return err
	}
	return h.credentials.Delete(ctx, account.FromContext(ctx).OrgID, id)
}

func (h credentialHandler) TestNewCredential(ctx context.Context,
	req *oas.CredentialCreate) (*oas.ConnectionTest, error) {
	return answerTest(h.credentials.Try(ctx, account.FromContext(ctx).OrgID, createdCredential(req, oas.OptBool{})))
}

func (h credentialHandler) TestCredential(ctx context.Context,
	params oas.TestCredentialParams) (*oas.ConnectionTest, error) {
	id, err := pathID("Credential", params.CredentialID)
	if err != nil {
		return nil, err
	}
	return answerTest(h.credentials.Test(ctx, account.FromContext(ctx).OrgID, id))
}

// callbackPath is where returnAuthorization is.
const callbackPath = "/v1/credentials/callback"

func (h credentialHandler) AuthorizeCredential(ctx context.Context,
	params oas.AuthorizeCredentialParams) (*oas.Consent, error) {
	id, err := pathID("Credential", params.CredentialID)
	if err != nil {
		return nil, err
	}
	caller := account.FromContext(ctx)
	back := h.publicURL() + callbackPath
	consent, err := h.credentials.Authorize(ctx, caller, id, back)
	if err != nil {
		return nil, err
	}
	return &oas.Consent{URL: consent.URL, RedirectURI: back, ExpiresAt: consent.ExpiresAt.UTC()}, nil
}

func (h credentialHandler) ReturnAuthorization(ctx context.Context,
	params oas.ReturnAuthorizationParams) (oas.ReturnAuthorizationOK, error) {
	back := credential.Return{State: params.State, Code: params.Code.Or(""), Error: params.Error.Or(""),
		Operation: account.Operation{ID: "returnAuthorization", RequestID: requestID(ctx)}}
	if err := h.credentials.Returned(ctx, back); err != nil {
		return oas.ReturnAuthorizationOK{}, err
	}
	return oas.ReturnAuthorizationOK{Data: strings.NewReader(
		"The credential is authorized. You can close this window.\n")}, nil
}

func answerTest(outcome credential.Outcome, err error) (*oas.ConnectionTest, error) {
	if err != nil {
		return nil, err
	}
	out := connectionTestOf(outcome)
	return &out, nil
}

func answerCredential(c *credential.Credential, err error) (*oas.Credential, error) {
	if err != nil {
		return nil, err
	}
	out := credentialOf(c)
	return &out, nil
}
