package api

import (
	"context"

	"flowlane/gen/db"
	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/platform/orgcatalog"
)

// maxImportBody is the limit of the body that holds a document to import.
const maxImportBody = 6 << 20

// catalogImportHandler serves /catalog/imports.
type catalogImportHandler struct{ imports *orgcatalog.Service }

func (h catalogImportHandler) ListCatalogImports(ctx context.Context,
	params oas.ListCatalogImportsParams) (*oas.CatalogImportList, error) {
	caller := account.FromContext(ctx)
	p, err := pageOf("catalog-imports", caller.OrgID, params.Limit, params.Skip, params.Cursor)
	if err != nil {
		return nil, err
	}
	rows, total, err := h.imports.List(ctx, caller.OrgID, p.Key, p.Skip(), p.Fetch())
	if err != nil {
		return nil, err
	}
	list := oas.CatalogImportList(listOf(p, rows, total, func(i *orgcatalog.Platform) string { return i.PlatformID },
		importOf))
	return &list, nil
}

func (h catalogImportHandler) ImportPlatform(ctx context.Context, req *oas.CatalogImportInput,
	_ oas.ImportPlatformParams) (*oas.CatalogImport, error) {
	caller := account.FromContext(ctx)
	in := orgcatalog.Input{
		Document: req.Document, PlatformID: req.PlatformID.Value, DryRun: req.DryRun.Value,
		Options: orgcatalog.Options{Auth: orEmpty(req.Auth), Only: orEmpty(req.Only), BaseURL: req.BaseURL.Value},
	}
	if a, ok := req.Account.Get(); ok {
		in.Options.Account = &orgcatalog.Account{Path: a.Path, Number: a.AccountNumber}
	}
	return answerImport(h.imports.Import(ctx, caller.OrgID, caller.AccountID.String(), in, keepCreated(answerImport)))
}

func (h catalogImportHandler) GetCatalogImport(ctx context.Context,
	params oas.GetCatalogImportParams) (*oas.CatalogImport, error) {
	return answerImport(h.imports.Get(ctx, account.FromContext(ctx).OrgID, params.ImportID))
}

func (h catalogImportHandler) DeleteCatalogImport(ctx context.Context, params oas.DeleteCatalogImportParams) error {
	return h.imports.Delete(ctx, account.FromContext(ctx).OrgID, params.ImportID)
}

func answerImport(p *orgcatalog.Platform, err error) (*oas.CatalogImport, error) {
	if err != nil {
		return nil, err
	}
	out := importOf(p)
	return &out, nil
}

func importOf(p *orgcatalog.Platform) oas.CatalogImport {
	out := oas.CatalogImport{
		PlatformID: p.PlatformID, Version: int(p.Version), Name: p.Name, Stored: p.Stored,
		DocumentDigest: p.DocumentDigest,
		Options: oas.CatalogImportOptions{Auth: p.Options.Auth, Only: p.Options.Only,
			BaseURL: p.Options.BaseURL},
		Services: int(p.Services), Actions: int(p.Actions), Operations: int(p.Operations),
		OperationsSkipped: int(p.Skipped), OperationsLeftOut: int(p.LeftOut),
		Changes: []oas.CatalogImportChange{}, Report: []oas.CatalogImportEntry{}, ReportTotal: p.Report.Total,
		Versions:  []oas.CatalogImportVersion{},
		CreatedBy: p.CreatedBy, CreatedAt: p.CreatedAt.UTC(),
	}
	out.Options.Account.SetToNull()
	if a := p.Options.Account; a != nil {
		out.Options.Account.SetTo(oas.CatalogImportAccount{Path: a.Path, AccountNumber: a.Number})
	}
	for _, c := range p.Changes {
		out.Changes = append(out.Changes, oas.CatalogImportChange{ID: c.ID,
			Effect: oas.CatalogImportChangeEffect(c.Effect), Diff: c.Diff})
	}
	for _, e := range p.Report.Entries {
		out.Report = append(out.Report, oas.CatalogImportEntry{Pointer: e.Pointer, Line: e.Line,
			Effect: oas.CatalogImportEntryEffect(e.Effect), Message: e.Message})
	}
	for _, v := range p.Versions {
		out.Versions = append(out.Versions, importVersionOf(v))
	}
	return out
}

func importVersionOf(v db.CatalogImportListRow) oas.CatalogImportVersion {
	return oas.CatalogImportVersion{
		Version: int(v.Version), DocumentDigest: v.DocumentDigest, Actions: int(v.Actions), CreatedBy: v.CreatedBy,
		CreatedAt: v.CreatedAt.UTC(),
	}
}
