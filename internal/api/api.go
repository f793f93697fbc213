// Package api owns the HTTP surface under /v1: it turns requests into calls of the domain packages and their answers
// into what openapi.yaml promises. It alone knows statuses. Group handlers (one file per operation group) hold no
// rules: a read is a query, a write is one domain method, and errors go back bare.
package api

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"flowlane/gen/oas"
	"flowlane/internal/account"
	"flowlane/internal/definition"
	"flowlane/internal/dryrun"
	"flowlane/internal/forecast"
	"flowlane/internal/memory"
	"flowlane/internal/pause"
	"flowlane/internal/pg"
	"flowlane/internal/platform/catalog"
	"flowlane/internal/platform/credential"
	"flowlane/internal/platform/orgcatalog"
	"flowlane/internal/platform/tenant"
	"flowlane/internal/recordset"
	"flowlane/internal/request"
	"flowlane/internal/retention"
	"flowlane/internal/run"
	"flowlane/internal/store"
	"flowlane/internal/stream"
	"flowlane/internal/template"
	"flowlane/internal/trigger/schedule"
	"flowlane/internal/trigger/subscription"
	"flowlane/internal/trigger/webhook"
	"flowlane/internal/usage"
	"flowlane/internal/variable"
)

// prefix is the version segment under which everything stands.
const prefix = "/v1"

// Deps are what the handlers work with. All fields but Observe, Tracer, TrustFailover and Reads are required.
type Deps struct {
	Pool pg.Pool
	// Reads is where lists are asked for that may be a little old; nil for Pool.
	Reads         pg.DB
	Accounts      *account.Service
	Catalog       *catalog.Catalog
	RecordSets    *recordset.Service
	Definitions   *definition.Service
	Templates     *template.Templates
	Variables     *variable.Service
	Tenants       *tenant.Service
	Stores        *store.Service
	Plans         *definition.Plans
	Credentials   *credential.Service
	Runs          *run.Service
	Streams       *stream.Hub
	Forecasts     *forecast.Service
	Pauses        *pause.Service
	Schedules     *schedule.Service
	Webhooks      *webhook.Service
	Subscriptions *subscription.Service
	Imports       *orgcatalog.Service
	Answers       *request.Answers
	Limits        *request.Limits
	// RequestLimit replaces the number of every request limit of the document, unless it is 0. What the operator set
	// for an organization stays.
	RequestLimit int64
	// Retention is how long the operator keeps things at most.
	Retention retention.Installation
	DryRuns   *dryrun.Service
	Usage     *usage.Service
	// Refresher, Tuner, Resolver and Calls are the dispatcher.
	Refresher Refresher
	Tuner     Tuner
	Resolver  Resolver
	Calls     Calls
	// PublicURL gives the address under which people reach the service, without a slash at its end.
	PublicURL func() string
	// Observe is told of every request, in the context of its span: its operation, empty for a path that has none, its
	// status, and how long it took.
	Observe func(ctx context.Context, operation string, status int, took time.Duration)
	// TrustFailover: the process goes on by itself on a standby that was promoted.
	TrustFailover bool
	// Tracer makes the spans of requests; nil for none.
	Tracer trace.Tracer
	// Now dates nothing that is stored; it measures how long requests take.
	Now func() time.Time
	Log *slog.Logger
}

// handler is the whole of the generated interface, one part per operation group.
type handler struct {
	accountHandler
	catalogHandler
	catalogImportHandler
	credentialHandler
	recordSetHandler
	definitionGroup
	templateHandler
	variableHandler
	scheduleHandler
	webhookHandler
	eventHandler
	tenantHandler
	storeHandler
	batchHandler
	triggersHandler
	jobHandler
	executionHandler
	callHandler
	usageHandler
	dispatchHandler
	pauseHandler
	errorHandler
}

var _ oas.Handler = handler{}

// definitionGroup is what the document groups under definitions.
type definitionGroup struct {
	definitionHandler
	triggerHandler
	dryRunHandler
}

// New returns the handler of every path under /v1; any other path is 404 in the error envelope.
func New(d Deps) (http.Handler, error) {
	if d.Observe == nil {
		d.Observe = func(context.Context, string, int, time.Duration) {}
	}
	if d.Tracer == nil {
		d.Tracer = noop.Tracer{}
	}
	if d.Reads == nil {
		d.Reads = d.Pool
	}
	go documentedRules() // takes a while, and is not needed yet
	errs := errorHandler{log: d.Log, outage: &outage{pool: d.Pool, now: d.Now, log: d.Log,
		trustFailover: d.TrustFailover}, publicURL: d.PublicURL}
	sec := security{accounts: d.Accounts, limiter: limiter{limits: d.Limits, most: d.RequestLimit}, log: d.Log}
	h, err := newHandler(d, errs)
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	server, err := oas.NewServer(h, sec,
		oas.WithPathPrefix(prefix),
		oas.WithTracerProvider(noop.NewTracerProvider()), // outermost traces what goes past the generated server, too
		oas.WithErrorHandler(errs.refused),
		oas.WithNotFound(errs.notFound),
		oas.WithMethodNotAllowed(errs.methodNotAllowed),
		oas.WithMiddleware(refuseBadQuery, idempotency{answers: d.Answers, log: d.Log}.middleware,
			onPlatform{catalog: d.Catalog, forecasts: d.Forecasts}.middleware),
	)
	if err != nil {
		return nil, fmt.Errorf("api: %w", err)
	}
	messages := receiverRoute{errs: errs, webhooks: d.Webhooks, room: memory.New(messageBytes)}
	messages.next = chunkRoute{next: server, sec: sec, errs: errs, sets: d.RecordSets, places: newPlaces(uploadsAtOnce)}
	return outermost{
		next: messages, route: server.FindPath, errs: errs, observe: d.Observe, tracer: d.Tracer, now: d.Now,
		log: d.Log, lists: newPlaces(listsAtOnce),
	}, nil
}

// newHandler makes what serves the operations.
func newHandler(d Deps, errs errorHandler) (h handler, err error) {
	catalogs, err := newCatalogHandler(d.Catalog)
	if err != nil {
		return h, err
	}
	templates, err := newTemplateHandler(d.Templates)
	if err != nil {
		return h, err
	}
	return handler{
		accountHandler: accountHandler{pool: d.Pool, reads: d.Reads, accounts: d.Accounts, runs: d.Runs,
			retention: d.Retention, publicURL: errs.reached},
		catalogHandler:       catalogs,
		catalogImportHandler: catalogImportHandler{imports: d.Imports},
		credentialHandler:    credentialHandler{credentials: d.Credentials, publicURL: d.PublicURL},
		recordSetHandler:     recordSetHandler{sets: d.RecordSets},
		definitionGroup: definitionGroup{
			definitionHandler: definitionHandler{definitions: d.Definitions, templates: d.Templates},
			dryRunHandler:     dryRunHandler{dryRuns: d.DryRuns},
			triggerHandler:    newTriggerHandler(d),
		},
		templateHandler:  templates,
		variableHandler:  variableHandler{variables: d.Variables},
		scheduleHandler:  scheduleHandler{pool: d.Pool, schedules: d.Schedules},
		webhookHandler:   webhookHandler{webhooks: d.Webhooks},
		eventHandler:     eventHandler{subscriptions: d.Subscriptions},
		tenantHandler:    tenantHandler{tenants: d.Tenants},
		storeHandler:     storeHandler{stores: d.Stores},
		batchHandler:     newBatchHandler(d),
		triggersHandler:  triggersHandler{pool: d.Pool, reads: d.Reads},
		jobHandler:       jobHandler{runs: d.Runs, resolver: d.Resolver},
		executionHandler: executionHandler{runs: d.Runs, streams: d.Streams, heartbeat: heartbeat},
		callHandler:      callHandler{calls: d.Calls},
		usageHandler:     usageHandler{usage: d.Usage},
		dispatchHandler:  dispatchHandler{forecasts: d.Forecasts, refresher: d.Refresher, tuner: d.Tuner},
		pauseHandler:     pauseHandler{pauses: d.Pauses},
		errorHandler:     errs,
	}, nil
}
