package site_test

import (
	"errors"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane"
	"flowlane/docs"
	"flowlane/internal/orgquota"
	"flowlane/internal/platform/catalog"
)

// limits are the rows of docs/limits.md by their first cell, and where the program has their numbers: a constant of a
// package, or the way to it in the API document, or in the parameters of an action. Durations are in seconds.
var limits = map[string]string{
	"body of a request":                              "api.maxBody bytes",
	"body of a chunk of records":                     "recordset.MaxBodyBytes bytes",
	"records in a chunk":                             "recordset.MaxChunkSize",
	"body of a platform's import":                    "api.maxImportBody bytes",
	"objects and arrays in one another, in a body":   "api/violation.MaxDepth",
	"objects and arrays in one another, in a chunk":  "recordset.maxDepth",
	"headers of a request":                           "app.maxHeader bytes",
	"time to send the headers":                       "app.headerTimeout",
	"items of a list, where nothing else is said":    "/components/parameters/Limit/schema maximum",
	"life of a stream token":                         "account.StreamTokenLife",
	"open streams of one process":                    "stream.maxStreams",
	"records of a trigger, inline":                   "/components/schemas/TriggerRequest/properties/records maxItems",
	"time until an upload goes on or is used":        "recordset.Staging",
	"records that pacing releases at a time":         "pacing.maxRecords",
	"minutes from one release of pacing to the next": "pacing.maxPeriodMinutes",
	"a hold with an end": "/components/schemas/PauseCreate/properties/duration_seconds " +
		"maximum",
	"starts in a row, of flows by events and flows": "event.MaxDepth",
	"steps of a flow":                                 "definition.maxSteps",
	"tasks of a step":                                 "definition.maxTasks",
	"elements of a `for_each`":                        "expr.MaxElements",
	"attempts of a call":                              "definition.maxAttempts",
	"pause before the first repeat":                   "definition.maxInitialSeconds",
	"pause between attempts":                          "definition.maxMaxSeconds",
	"time of one attempt":                             "definition.maxTimeoutSeconds",
	"time of one attempt, where nothing else is said": "definition.defaultTimeout",
	"time of a `core__flow__delay`":                   "core__flow__delay seconds",
	"an input schema":                                 "schema.MaxBytes bytes",
	"a record that a schema is asked about":           "schema.maxValue bytes",
	"one expression":                                  "expr.MaxSource bytes",
	"expressions in one value":                        "expr.MaxExpressions",
	"a rendered value":                                "expr.MaxResult bytes",
	"answer that is read":                             "provider.defaultMaxAnswer bytes",
	"answer of XML, CSV or lines that is understood":  "provider.maxParsed bytes",
	"output of a task":                                "provider.maxOutput bytes",
	"body of a failure that a later step sees":        "provider.maxErrorBody bytes",
	"code or message of a failure, in characters":     "provider.maxText",
	"wait that an answer may ask for":                 "provider.maxWait",
	"message":                                         "webhook.MaxBody bytes",
	"age of a signature":                              "webhook.tolerance",
	"time in which an old secret stays good":          "webhook.overlap",
	"stores":                                          "store.maxStores",
	"fields of a store":                               "store.maxFields",
	"layers of a store":                               "store.maxLayers",
	"one record of a store":                           "store.maxRecord bytes",
	"records written at a time":                       "store.MaxWrites",
	"variable sets":                                   "variable.maxSets",
	"versions of a variable set":                      "variable.maxVersions",
	"imported platforms":                              "orgcatalog.maxPlatforms",
}

// limitRow is a row of a table of numbers: what is bounded, and by how much.
var limitRow = regexp.MustCompile(`(?m)^\| (.+?) \| ([0-9][0-9,]*)(?: (KiB|MiB|s|min|h|d))? \|$`)

// TestLimits holds the numbers of docs/limits.md against the program.
func TestLimits(t *testing.T) {
	t.Parallel()
	said := map[string]int64{}
	bounded, rest, found := strings.Cut(limitsPage(t), "\n## Requests\n")
	require.True(t, found)
	for _, row := range limitRow.FindAllStringSubmatch(bounded, -1) {
		said[row[1]] = quantity(t, row[2], row[3])
	}
	for what, source := range limits {
		n, ok := said[what]
		if assert.True(t, ok, "no row says %q", what) {
			assert.Equal(t, limitOf(t, source), n, what)
		}
		delete(said, what)
	}
	assert.Empty(t, said, "nothing holds these rows")

	requests, rest, _ := strings.Cut(rest, "\n## Quotas\n")
	numbers := map[int64]bool{}
	for _, row := range limitRow.FindAllStringSubmatch(requests, -1) {
		numbers[quantity(t, row[2], "")] = true
	}
	assert.Equal(t, requestLimits(t), numbers)
	quotas, _, _ := strings.Cut(rest, "\n## ")
	shown := map[string]int64{}
	for _, row := range limitRow.FindAllStringSubmatch(quotas, -1) {
		shown[strings.Trim(row[1], "`")] = quantity(t, row[2], "")
	}
	for _, q := range orgquota.All {
		assert.Equal(t, q.Default, shown[q.Name], q.Name)
	}
	assert.Len(t, shown, len(orgquota.All))
}

func limitsPage(t *testing.T) string {
	t.Helper()
	text, err := docs.Files.ReadFile("limits.md")
	require.NoError(t, err)
	return string(text)
}

// quantity is a number with its unit, in bytes or seconds.
func quantity(t *testing.T, number, unit string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(strings.ReplaceAll(number, ",", ""), 10, 64)
	require.NoError(t, err)
	return n * map[string]int64{"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "s": 1, "min": 60, "h": 3600, "d": 86400}[unit]
}

// limitOf is a number of the program; see limits.
func limitOf(t *testing.T, source string) int64 {
	t.Helper()
	at, keyword, _ := strings.Cut(source, " ")
	switch {
	case strings.HasPrefix(at, "/"):
		return documentNumber(t, at, keyword)
	case strings.Contains(at, "__"):
		return parameterMaximum(t, at, keyword)
	}
	i := strings.LastIndexByte(at, '.')
	value, kind := constantOf(t, at[:i], at[i+1:])
	if kind == "time.Duration" {
		value /= int64(time.Second)
	}
	return value
}

// requestLimits are the numbers of all x-rate-limit of the API document.
func requestLimits(t *testing.T) map[int64]bool {
	t.Helper()
	out := map[int64]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +x-rate-limit: (\d+) per 1 minute$`).FindAllStringSubmatch(
		string(flowlane.OpenAPI), -1) {
		out[quantity(t, m[1], "")] = true
	}
	return out
}

// documentNumber is a keyword of a schema of the API document.
func documentNumber(t *testing.T, pointer, keyword string) int64 {
	t.Helper()
	document, err := openapi3.NewLoader().LoadFromData(flowlane.OpenAPI)
	require.NoError(t, err)
	parts := strings.Split(pointer, "/")[2:]
	schema := &openapi3.SchemaRef{}
	if parts[0] == "parameters" {
		schema = document.Components.Parameters[parts[1]].Value.Schema
	} else {
		schema = document.Components.Schemas[parts[1]].Value.Properties[parts[3]]
	}
	require.NotNil(t, schema, pointer)
	if keyword == "maxItems" {
		return int64(*schema.Value.MaxItems) //nolint:gosec // small
	}
	return int64(*schema.Value.Max)
}

// parameterMaximum is the maximum of a parameter of an action.
func parameterMaximum(t *testing.T, action, name string) int64 {
	t.Helper()
	c, err := catalog.Load(catalog.Options{})
	require.NoError(t, err)
	a, ok := c.Action(action)
	require.True(t, ok, action)
	m := regexp.MustCompile(`"` + name + `":\{[^{}]*"maximum":(\d+)`).FindStringSubmatch(string(a.ParamsSchema))
	require.NotNil(t, m, "%s of %s", name, action)
	return quantity(t, m[1], "")
}

// durations stands in for package time, all that the constants need of other packages.
type durations struct{}

func (durations) Import(path string) (*types.Package, error) {
	if path != "time" {
		return nil, errors.New("left out")
	}
	pkg := types.NewPackage("time", "time")
	name := types.NewTypeName(token.NoPos, pkg, "Duration", nil)
	kind := types.NewNamed(name, types.Typ[types.Int64], nil)
	pkg.Scope().Insert(name)
	for unit, length := range map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second,
		"Minute": time.Minute, "Hour": time.Hour} {
		pkg.Scope().Insert(types.NewConst(token.NoPos, pkg, unit, kind, constant.MakeInt64(int64(length))))
	}
	pkg.MarkComplete()
	return pkg, nil
}

// constantOf is a constant of a package of internal, exported or not, and its type.
func constantOf(t *testing.T, dir, name string) (int64, string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
	require.NoError(t, err)
	if len(files) == 0 { // it stands beside others of its kind
		files, err = filepath.Glob(filepath.Join("..", "*", dir, "*.go"))
		require.NoError(t, err)
	}
	set := token.NewFileSet()
	var parsed []*ast.File
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(set, file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		parsed = append(parsed, f)
	}
	config := types.Config{Importer: durations{}, Error: func(error) {}, IgnoreFuncBodies: true}
	pkg, _ := config.Check(dir, set, parsed, nil) // its imports are missing, which its constants do not mind
	c, ok := pkg.Scope().Lookup(name).(*types.Const)
	require.True(t, ok, "%s.%s is no constant", dir, name)
	value, exact := constant.Int64Val(constant.ToInt(c.Val()))
	require.True(t, exact, "%s.%s", dir, name)
	return value, c.Type().String()
}
