package definition_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/definition"
	"flowlane/internal/fault"
	"flowlane/internal/listing"
	"flowlane/test/pgtest"
)

// bundle is a service with an organization of its own.
type bundle struct {
	*definition.Service
	t    *testing.T
	pool *pgxpool.Pool
	org  uuid.UUID
}

func setup(t *testing.T) *bundle {
	t.Helper()
	pool := pgtest.New(t)
	b := &bundle{Service: definition.New(pool, load(t)), t: t, pool: pool}
	b.org = b.organization()
	return b
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.pool.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

func (b *bundle) organization() uuid.UUID {
	id := uuid.Must(uuid.NewV7())
	b.exec("INSERT INTO flow.organization (id, name) VALUES ($1, 'o')", id)
	return id
}

func (b *bundle) credential(org uuid.UUID, platform, status string) string {
	id := uuid.Must(uuid.NewV7())
	b.exec(`INSERT INTO flow.credential (id, org_id, name, platform_id, auth_method, status, created_by) VALUES ($1, $2, 'c', $3, 'basic_auth', $4, 'a')`,
		id, org, platform, status)
	return id.String()
}

// draft is a definition with one task that builds a value.
func draft(t *testing.T, name, value string) definition.Draft {
	return definition.Draft{Name: name, Document: document(t,
		fmt.Sprintf(`{"steps": [{"id": "s", "tasks": [{"id": "t", "action_id": "core__flow__transform", "params": {"value": %s}}]}]}`, value))}
}

func upload(t *testing.T, credential string) definition.Draft {
	return definition.Draft{Name: "Upload", Document: document(t, fmt.Sprintf(
		`{"steps": [{"id": "s", "tasks": [{"id": "t", "action_id": "dialer__api__upload", "credential_id": %q, "params": {"list": "demo", "row": "{{ input }}"}}]}]}`, credential))}
}

// asFault returns the fault of an error, which must be one of this code.
func asFault(t *testing.T, err error, code fault.Code) *fault.Error {
	t.Helper()
	var f *fault.Error
	require.ErrorAs(t, err, &f)
	require.Equal(t, code, f.Code, f.Error())
	return f
}

func TestService_Create(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := draft(t, "One", `{"b": 1.10, "a": "<x>"}`)
	made, err := b.Create(t.Context(), b.org, "me", d)
	require.NoError(t, err)
	assert.Equal(t, definition.StatusDraft, made.Status)
	assert.Equal(t, int32(1), made.Version)
	assert.Equal(t, "me", made.CreatedBy)

	got, err := b.Get(t.Context(), b.org, made.ID)
	require.NoError(t, err)
	assert.Equal(t, made.FlowDefinition, got.FlowDefinition)
	assert.Equal(t, `{"value":{"b":1.10,"a":"<x>"}}`, string(got.Document.Steps[0].Tasks[0].Params))

	_, err = b.Get(t.Context(), b.organization(), made.ID)
	assert.Equal(t, "Definition not found", asFault(t, err, fault.NotFound).Detail)
}

func TestService_Create_Refused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.organization()
	cases := map[string]struct {
		draft  definition.Draft
		code   fault.Code
		places []string
		detail string
	}{
		"Head": {definition.Draft{Name: "", Status: "archived", Document: definition.Document{Lane: "x"}},
			fault.Unprocessable,
			[]string{"body.name string_too_short", "body.status enum", "body.lane enum", "body.steps too_short"},
			"Validation failed"},
		"ForeignCredential": {upload(t, b.credential(other, "dialer", "active")), fault.NotFound,
			[]string{"body.steps.0.tasks.0.credential_id not_found"}, "Credential not found"},
		"UnknownCredential": {upload(t, uuid.NewString()), fault.NotFound,
			[]string{"body.steps.0.tasks.0.credential_id not_found"}, "Credential not found"},
		"NoUUID": {upload(t, "mine"), fault.NotFound,
			[]string{"body.steps.0.tasks.0.credential_id not_found"}, "Credential not found"},
		"OtherPlatform": {upload(t, b.credential(b.org, "aws", "active")), fault.Unprocessable,
			[]string{"body.steps.0.tasks.0.credential_id value_error"}, "Validation failed"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := b.Create(t.Context(), b.org, "me", c.draft)
			f := asFault(t, err, c.code)
			assert.Equal(t, c.detail, f.Detail)
			assert.ElementsMatch(t, c.places, places(f.Fields))
		})
	}
	_, err := b.Create(t.Context(), b.org, "me", draft(t, "Bad", `["{{ a }}", "{{ b }}", "{{ c }}"]`))
	assert.Len(t, asFault(t, err, fault.Unprocessable).Expressions, 3)
	total, err := b.Count(t.Context(), b.org, definition.Filter{})
	require.NoError(t, err)
	assert.Zero(t, total, "nothing is half done")
}

func TestService_Validate(t *testing.T) {
	t.Parallel()
	b := setup(t)
	found, err := b.Validate(t.Context(), b.org, upload(t, b.credential(b.org, "dialer", "active")))
	require.NoError(t, err)
	assert.Empty(t, found.BadExpressions)
	assert.Empty(t, found.Warnings)

	expired := b.credential(b.org, "dialer", "expired")
	d := definition.Draft{Name: "Dial", Document: document(t, fmt.Sprintf(`{"steps": [{"id": "s", "tasks": [
		{"id": "dial", "action_id": "dialer__api__dial", "credential_id": %q, "params": {"number": "{{ inptu }}", "campaign": "c"}},
		{"id": "twice", "action_id": "dialer__api__upload", "credential_id": %q, "params": {"list": "l", "row": "{{ input }}"}, "delivery": "at_least_once"}]}]}`, expired, expired))}
	found, err = b.Validate(t.Context(), b.org, d)
	require.NoError(t, err)
	assert.Len(t, found.BadExpressions, 1)
	require.Len(t, found.Warnings, 4)
	for i, want := range []string{"the credential is expired", "cannot tell whether a call arrived",
		"the credential is expired", "twice"} {
		assert.Contains(t, found.Warnings[i], want)
	}
}

// TestService_ValidateOutcome: calls that may end unresolved are told, with what prevents it.
func TestService_ValidateOutcome(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const unresolved = `step "s", task "t": core__http__request cannot tell whether a call arrived when its answer is lost; such a job waits in ` +
		`unresolved until a person settles it: set idempotency_header if the receiver drops a repeat with the same key, or delivery at_least_once ` +
		`if a repeat does no harm`
	for name, c := range map[string]struct {
		params, more string
		want         []string
	}{
		"Get":        {`{"url": "http://a.example"}`, "", nil},
		"Put":        {`{"url": "http://a.example", "method": "PUT"}`, "", nil},
		"Post":       {`{"url": "http://a.example", "method": "POST"}`, "", []string{unresolved}},
		"Patch":      {`{"url": "http://a.example", "method": "PATCH"}`, "", []string{unresolved}},
		"Expression": {`{"url": "http://a.example", "method": "{{ input.method }}"}`, "", []string{unresolved}},
		"Key": {`{"url": "http://a.example", "method": "POST", "idempotency_header": "Idempotency-Key"}`,
			"", nil},
		"KeyByExpression": {`{"url": "http://a.example", "method": "POST", "idempotency_header": "{{ input.h }}"}`, "",
			nil},
		"Twice": {`{"url": "http://a.example", "method": "POST"}`, `, "delivery": "at_least_once"`,
			[]string{`step "s", task "t": delivery at_least_once may send a record twice`}},
		"TwiceSafe": {`{"url": "http://a.example"}`, `, "delivery": "at_least_once"`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			doc := document(t, fmt.Sprintf(
				`{"steps": [{"id": "s", "tasks": [{"id": "t", "action_id": "core__http__request", "params": %s%s}]}]}`,
				c.params, c.more))
			found, err := b.Validate(t.Context(), b.org, definition.Draft{Name: "Call", Document: doc})
			require.NoError(t, err)
			assert.Equal(t, c.want, found.Warnings)
		})
	}
}

// TestService_ValidateIdle: what only calls heed is no error on a task that makes none, and is told.
func TestService_ValidateIdle(t *testing.T) {
	t.Parallel()
	b := setup(t)
	d := definition.Draft{Name: "Idle", Document: document(t, `{"steps": [{"id": "s", "tasks": [
		{"id": "a", "action_id": "core__flow__delay", "params": {"seconds": 1}, "retry": {"max_attempts": 2}},
		{"id": "b", "action_id": "core__flow__wait_for_event", "params": {"event_kind": "flow.event", "timeout_seconds": 9}, "timeout_seconds": 5,
			"retry": {"max_attempts": 1}},
		{"id": "c", "action_id": "core__flow__start_flow", "params": {"definition_id": "x"}, "delivery": "at_least_once"},
		{"id": "d", "action_id": "core__flow__transform", "params": {"value": 1}, "timeout_seconds": 5},
		{"id": "e", "action_id": "core__flow__transform", "params": {"value": 1}, "delivery": "at_most_once"},
		{"id": "f", "action_id": "core__http__request", "params": {"url": "http://a.example"}, "timeout_seconds": 5, "retry": {"max_attempts": 2}}]}]}`)}
	found, err := b.Validate(t.Context(), b.org, d)
	require.NoError(t, err)
	assert.Empty(t, found.BadExpressions)
	assert.Equal(t, []string{
		`step "s", task "a": retry of the task changes nothing, because core__flow__delay makes no call`,
		`step "s", task "b": timeout_seconds and retry of the task changes nothing, because core__flow__wait_for_event makes no call; how long it waits is timeout_seconds of its params`,
		`step "s", task "c": delivery of the task changes nothing, because core__flow__start_flow makes no call`,
		`step "s", task "d": timeout_seconds of the task changes nothing, because core__flow__transform makes no call`,
	}, found.Warnings)
	_, err = b.Create(t.Context(), b.org, "me", d)
	require.NoError(t, err)
}

func TestService_Patch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	made, err := b.Create(ctx, b.org, "me", draft(t, "One", "1"))
	require.NoError(t, err)
	set := func(p definition.Patch) (definition.Definition, error) { return b.Patch(ctx, b.org, made.ID, p) }
	text := func(s string) *string { return &s }

	same, err := set(definition.Patch{})
	require.NoError(t, err)
	assert.Equal(t, made.UpdatedAt, same.UpdatedAt)
	got, err := set(definition.Patch{Name: text("Two"), Description: text("d")})
	require.NoError(t, err)
	assert.Equal(t, []string{"Two", "d", "draft"}, []string{got.Name, got.Description, got.Status})
	assert.True(t, got.UpdatedAt.After(made.UpdatedAt))
	assert.Equal(t, int32(1), got.Version)

	_, err = set(definition.Patch{Name: text(""), Status: text("gone")})
	assert.Equal(t, []string{"body.name string_too_short", "body.status enum"},
		places(asFault(t, err, fault.Unprocessable).Fields))
	_, err = b.Patch(ctx, b.organization(), made.ID, definition.Patch{Name: text("x")})
	assert.Equal(t, "Definition not found", asFault(t, err, fault.NotFound).Detail)
}

func TestService_Patch_Status(t *testing.T) {
	t.Parallel()
	b := setup(t)
	allowed := map[string]bool{"draft active": true, "draft archived": true, "active archived": true,
		"archived active": true}
	for _, from := range []string{"draft", "active", "archived"} {
		for _, to := range []string{"draft", "active", "archived"} {
			d, err := b.Create(t.Context(), b.org, "me", draft(t, from, "1"))
			require.NoError(t, err)
			if from != "draft" {
				b.exec("UPDATE flow.definition SET status = $2 WHERE id = $1", d.ID, from)
			}
			got, err := b.Patch(t.Context(), b.org, d.ID, definition.Patch{Status: &to})
			_, sqlErr := b.pool.Exec(t.Context(), "UPDATE flow.definition SET status = $2 WHERE id = $1", d.ID, to)
			if from == to || allowed[from+" "+to] {
				require.NoError(t, err)
				require.NoError(t, sqlErr)
				assert.Equal(t, to, got.Status)
				continue
			}
			assert.Equal(t, "Definition cannot go from "+from+" to "+to, asFault(t, err, fault.Conflict).Detail)
			require.Error(t, sqlErr, "the database holds the rule as well")
		}
	}
}

func TestService_Active(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	d := draft(t, "One", "1")
	made, err := b.Create(ctx, b.org, "me", d)
	require.NoError(t, err)
	_, err = b.Active(ctx, b.pool, b.org, made.ID)
	assert.Equal(t, "Definition is not active", asFault(t, err, fault.Invalid).Detail)
	d.Status = definition.StatusActive
	made, err = b.Create(ctx, b.org, "me", d)
	require.NoError(t, err)
	row, err := b.Active(ctx, b.pool, b.org, made.ID)
	require.NoError(t, err)
	assert.Equal(t, made.FlowDefinition, row)
	_, err = b.Active(ctx, b.pool, b.organization(), made.ID)
	assert.Equal(t, "Definition not found", asFault(t, err, fault.NotFound).Detail)
}

func TestService_List(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	for i := range 5 {
		d := draft(t, fmt.Sprint("d", i), "1")
		if i%2 == 1 {
			d.Status = definition.StatusActive
		}
		_, err := b.Create(ctx, b.org, "me", d)
		require.NoError(t, err)
	}
	all := listing.Created(nil, nil)
	names := func(f definition.Filter, at listing.Page) (out []string, last uuid.UUID, total int64) {
		f.Created = all
		items, err := b.List(ctx, b.org, f, at)
		require.NoError(t, err)
		total, err = b.Count(ctx, b.org, f)
		require.NoError(t, err)
		for _, d := range items {
			out, last = append(out, d.Name), d.ID
		}
		return out, last, total
	}
	first, last, total := names(definition.Filter{}, listing.Page{Range: all, MaxRows: 2})
	assert.Equal(t, []string{"d0", "d1"}, first)
	assert.Equal(t, int64(5), total)
	next, _, _ := names(definition.Filter{}, listing.Page{Range: all, MaxRows: 2}.Behind(last))
	assert.Equal(t, []string{"d2", "d3"}, next)
	skipped, _, _ := names(definition.Filter{}, listing.Page{Range: all, Skip: 4, MaxRows: 50})
	assert.Equal(t, []string{"d4"}, skipped)
	active := definition.StatusActive
	filtered, _, total := names(definition.Filter{Status: &active}, listing.Page{Range: all, MaxRows: 50})
	assert.Equal(t, []string{"d1", "d3"}, filtered)
	assert.Equal(t, int64(2), total)
}

func TestService_Versions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	made, err := b.Create(ctx, b.org, "me", draft(t, "One", "1"))
	require.NoError(t, err)
	total, err := b.CountVersions(ctx, b.org, made.ID)
	require.NoError(t, err)
	all, err := b.Versions(ctx, b.org, made.ID, definition.VersionFilter{MaxRows: 50})
	require.NoError(t, err)
	require.Len(t, all, 1)
	assert.Equal(t, int64(1), total)
	one, err := b.Version(ctx, b.org, made.ID, 1)
	require.NoError(t, err)
	assert.Equal(t, all[0], one)
	assert.Equal(t, made.Document, one.Document)

	_, err = b.Version(ctx, b.org, made.ID, 2)
	assert.Equal(t, "Version not found", asFault(t, err, fault.NotFound).Detail)
	_, err = b.Version(ctx, b.organization(), made.ID, 1)
	assert.Equal(t, "Definition not found", asFault(t, err, fault.NotFound).Detail)
	_, err = b.CountVersions(ctx, b.organization(), made.ID)
	assert.Equal(t, "Definition not found", asFault(t, err, fault.NotFound).Detail)
	_, err = b.pool.Exec(ctx, "UPDATE flow.definition_version SET doc = '{}'")
	require.ErrorContains(t, err, "cannot change")
}

func TestPlans(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	plans := definition.NewPlans(load(t), 0)
	made, err := b.Create(ctx, b.org, "me", draft(t, "One", "1"))
	require.NoError(t, err)
	plan, err := plans.Plan(ctx, b.pool, b.org, made.ID, 1)
	require.NoError(t, err)
	assert.Equal(t, made.ID, plan.DefinitionID)
	assert.Equal(t, b.org, plan.OrgID)
	assert.Equal(t, int32(1), plan.Version)

	gone, cancel := context.WithCancel(ctx)
	cancel()
	again, err := plans.Plan(gone, b.pool, b.org, made.ID, 1)
	require.NoError(t, err, "no query is needed")
	assert.Same(t, plan, again)
	_, err = plans.Plan(ctx, b.pool, b.organization(), made.ID, 1)
	asFault(t, err, fault.NotFound)
	_, err = plans.Plan(ctx, b.pool, b.org, made.ID, 2)
	asFault(t, err, fault.NotFound)
}

// TestPlans_InputSchema: a version that was stored runs as it is, whatever is now said of a field that no record can
// have.
func TestPlans_InputSchema(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made, err := b.Create(t.Context(), b.org, "me", draft(t, "One", "1"))
	require.NoError(t, err)
	d := draft(t, "One", `"{{ input.emial }}"`)
	d.Document.InputSchema = []byte(`{"properties": {"email": {}}, "additionalProperties": false}`)
	_, err = b.Replace(t.Context(), b.org, made.ID, "me", d)
	assert.Len(t, asFault(t, err, fault.Unprocessable).Expressions, 1)
	doc, err := d.Document.Encode()
	require.NoError(t, err)
	b.exec(`INSERT INTO flow.definition_version (definition_id, version, org_id, doc, created_by) VALUES ($1, 2, $2, $3, 'me')`, made.ID, b.org, doc)
	plan, err := definition.NewPlans(load(t), 0).Plan(t.Context(), b.pool, b.org, made.ID, 2)
	require.NoError(t, err)
	require.NoError(t, plan.Runnable())
}

func TestPlans_Bound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx := t.Context()
	plans := definition.NewPlans(load(t), 10<<10) // room for two small plans
	var ids []uuid.UUID
	var first *definition.Plan
	for i := range 3 {
		made, err := b.Create(ctx, b.org, "me", draft(t, "One", "1"))
		require.NoError(t, err)
		plan, err := plans.Plan(ctx, b.pool, b.org, made.ID, 1)
		require.NoError(t, err)
		if i == 0 {
			first = plan
		}
		ids = append(ids, made.ID)
	}
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err := plans.Plan(gone, b.pool, b.org, ids[2], 1)
	require.NoError(t, err)
	_, err = plans.Plan(gone, b.pool, b.org, ids[0], 1)
	require.ErrorIs(t, err, context.Canceled, "the oldest had to go")
	again, err := plans.Plan(ctx, b.pool, b.org, ids[0], 1)
	require.NoError(t, err)
	assert.NotSame(t, first, again)
}

func TestPlans_CatalogChanged(t *testing.T) {
	t.Parallel()
	b := setup(t)
	made, err := b.Create(t.Context(), b.org, "me", draft(t, "One", "1"))
	require.NoError(t, err)
	b.exec(`INSERT INTO flow.definition_version (definition_id, version, org_id, doc, created_by)
		VALUES ($1, 2, $2, '{"steps": [{"id": "s", "tasks": [{"id": "t", "action_id": "gone__a__b"}]}]}', 'me')`,
		made.ID, b.org)
	plan, err := definition.NewPlans(load(t), 0).Plan(t.Context(), b.pool, b.org, made.ID, 2)
	require.NoError(t, err, "what happened stays readable")
	task := plan.Steps[0].Tasks[0]
	assert.Equal(t, "gone__a__b", task.Action.ID)
	assert.Contains(t, task.Gone, "has no action gone__a__b")
	assert.NotNil(t, task.Action.Call, "of an action that nobody wrote down it is not known")
	err = plan.Runnable()
	require.ErrorContains(t, err, "no longer fits the catalog")
	var f *fault.Error
	assert.NotErrorAs(t, err, &f)
}
