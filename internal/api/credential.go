package api

import (
	"context"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/credential"
)

// credentialHandler serves /credentials.
type credentialHandler struct{ credentials *credential.Service }

func (h credentialHandler) ListCredentials(ctx context.Context, params oas.ListCredentialsParams) (*oas.CredentialList, error) {
	caller := account.FromContext(ctx)
	p, err := pageOf("credentials", caller.OrgID, params.Limit, params.Skip, params.Cursor, params.Status.Value)
	if err != nil {
		return nil, err
	}
	after, err := p.afterID()
	if err != nil {
		return nil, err
	}
	rows, total, err := h.credentials.List(ctx, caller.OrgID, credential.Filter{
		Status: optional(params.Status.Value, params.Status.Set), After: after, Skip: p.Skip(), MaxRows: p.Fetch(),
	})
	if err != nil {
		return nil, err
	}
	key := func(c *credential.Credential) string { return c.ID.String() }
	list := oas.CredentialList(listOf(p, rows, total, key, credentialOf))
	return &list, nil
}

func (h credentialHandler) CreateCredential(ctx context.Context, req *oas.CredentialCreate, params oas.CreateCredentialParams) (*oas.Credential, error) {
	caller := account.FromContext(ctx)
	in := createdCredential(req, params.Verify)
	return answerCredential(h.credentials.Create(ctx, caller.OrgID, caller.AccountID.String(), in, keepCreated(answerCredential)))
}

func (h credentialHandler) GetCredential(ctx context.Context, params oas.GetCredentialParams) (*oas.Credential, error) {
	id, err := pathID("Credential", params.CredentialID)
	if err != nil {
		return nil, err
	}
	return answerCredential(h.credentials.Read(ctx, account.FromContext(ctx).OrgID, id))
}

func (h credentialHandler) ReplaceCredential(ctx context.Context, req *oas.CredentialUpdate, params oas.ReplaceCredentialParams) (*oas.Credential, error) {
	id, err := pathID("Credential", params.CredentialID)
	if err != nil {
		return nil, err
	}
	return answerCredential(h.credentials.Replace(ctx, account.FromContext(ctx).OrgID, id, replacedCredential(req, params.Verify)))
}

func (h credentialHandler) DeleteCredential(ctx context.Context, params oas.DeleteCredentialParams) error {
	id, err := pathID("Credential", params.CredentialID)
	if err != nil {
		return err
	}
	return h.credentials.Delete(ctx, account.FromContext(ctx).OrgID, id)
}

func (h credentialHandler) TestNewCredential(ctx context.Context, req *oas.CredentialCreate) (*oas.ConnectionTest, error) {
	return answerTest(h.credentials.Try(ctx, account.FromContext(ctx).OrgID, createdCredential(req, oas.OptBool{})))
}

func (h credentialHandler) TestCredential(ctx context.Context, params oas.TestCredentialParams) (*oas.ConnectionTest, error) {
	id, err := pathID("Credential", params.CredentialID)
	if err != nil {
		return nil, err
	}
	return answerTest(h.credentials.Test(ctx, account.FromContext(ctx).OrgID, id))
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
