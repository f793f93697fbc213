package api_test

import (
	_ "embed"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"flowlane/internal/api/violation"
)

//go:embed testdata/hostile_bodies.txt
var hostileBodies string

const (
	hostileBytes = 1<<19 - 200
	// decodings is how many times the processor time of decoding as many bytes no request may take which is refused for
	// its body: what is worse than linear takes hundreds.
	decodings = 8
)

// decoding returns the processor time that the decoder of the standard library takes for a body of that size which
// costs it much: what this machine does now, whoever else is on it.
func decoding(t *testing.T) time.Duration {
	t.Helper()
	body := []byte("[" + strings.Repeat("{},", hostileBytes/3) + "{}]")
	before := processorTime(t)
	var v any
	require.NoError(t, json.Unmarshal(body, &v))
	return processorTime(t) - before
}

type attack struct {
	name             string
	whole            bool
	head, unit, tail string
}

func attacks(t *testing.T) (all []attack) {
	t.Helper()
	for line := range strings.Lines(hostileBodies) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, "|")
		require.Len(t, parts, 5, line)
		for i := range parts {
			parts[i] = strings.TrimSpace(parts[i])
		}
		all = append(all, attack{parts[0], parts[1] == "body", parts[2], parts[3], parts[4]})
	}
	return all
}

// fill is a value of about so many bytes.
func (a attack) fill(bytes int) string {
	if !strings.Contains(a.unit, "{n}") {
		return a.head + strings.Repeat(a.unit, max(0, bytes-len(a.head+a.tail))/len(a.unit)) + a.tail
	}
	var b strings.Builder
	b.WriteString(a.head)
	for n := 0; b.Len()+len(a.unit)+len(a.tail) < bytes; n++ {
		b.WriteString(strings.ReplaceAll(a.unit, "{n}", strconv.Itoa(n)))
	}
	return b.String() + a.tail
}

// body is the attack on an operation whose body has these fields.
func (a attack) body(fields []string) string {
	if a.whole || len(fields) == 0 {
		return a.fill(hostileBytes)
	}
	var b strings.Builder
	for i, name := range fields {
		b.WriteString(string("{,"[min(i, 1)]) + strconv.Quote(name) + ":" +
			a.fill(hostileBytes/len(fields)-len(name)-10))
	}
	return b.String() + "}"
}

// TestHostileBodies measures the processor time of this process for each attack on each operation, beside that of
// decoding the same bytes: it runs alone.
func TestHostileBodies(t *testing.T) { //nolint:paralleltest // others would be counted
	s := serveStack(t, false)
	fields := bodyFields(t)
	require.NotEmpty(t, fields)
	set := s.made("/data/record-sets", nil)
	client := &http.Client{}
	slowest, unit := 0.0, decoding(t)
	for _, op := range documented(t) {
		names, ok := fields[op.id]
		if !ok {
			continue
		}
		for _, a := range attacks(t) {
			body := a.body(names)
			took := time.Hour
			for try := 0; try < 3 && took > decodings*unit; try++ { // a collection of what was before is not its doing
				took = min(took, s.refuse(client, op, set, body))
				if took > decodings*unit {
					unit = max(unit, decoding(t))
				}
			}
			slowest = max(slowest, float64(took)/float64(unit))
			assert.LessOrEqual(t, took, decodings*unit, "%s: %s", op.id, a.name)
		}
	}
	t.Logf("the slowest took %.1f times what decoding takes, which takes %v", slowest, unit)
}

// refuse sends a body that must be refused, and returns the processor time that it took. Paths name a record set, which
// may not be what they mean.
func (s *stack) refuse(client *http.Client, op operation, set, body string) time.Duration {
	s.t.Helper()
	path := op.path
	for _, name := range op.inPath {
		path = strings.ReplaceAll(path, "{"+name+"}", set)
	}
	req, err := http.NewRequestWithContext(s.t.Context(), op.method, s.URL+"/v1"+path, strings.NewReader(body))
	require.NoError(s.t, err)
	req.Header.Set("X-API-Key", s.Key)
	req.Header.Set("Content-Type", "application/json")
	before := processorTime(s.t)
	res, err := client.Do(req)
	require.NoError(s.t, err)
	answer, err := io.ReadAll(res.Body)
	require.NoError(s.t, err)
	require.NoError(s.t, res.Body.Close())
	took := processorTime(s.t) - before
	assert.Contains(s.t, []int{http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusNotFound},
		res.StatusCode,
		"%s: %.200s", op.id, answer)
	assert.NotContains(s.t, string(answer), `"Not found"`, "%s is not at %s", op.id, path)
	assert.Less(s.t, len(answer), 100_000, op.id)
	return took
}

func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	require.NoError(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bodyFields are the fields of the JSON bodies of operations.
func bodyFields(t *testing.T) map[string][]string {
	t.Helper()
	tree, err := violation.Document()
	require.NoError(t, err)
	d := documentWalk{tree}
	all := map[string][]string{}
	for _, item := range tree["paths"].(map[string]any) {
		for _, o := range item.(map[string]any) {
			o, _ := o.(map[string]any)
			content, _ := d.follow(o["requestBody"])["content"].(map[string]any)
			if media, ok := content["application/json"].(map[string]any); ok {
				var names []string
				d.fields(media["schema"], &names)
				slices.Sort(names)
				all[o["operationId"].(string)] = slices.Compact(names)
			}
		}
	}
	return all
}

// fields collects the names of the fields of a schema and of what it is made of.
func (d documentWalk) fields(node any, names *[]string) {
	schema := d.follow(node)
	properties, _ := schema["properties"].(map[string]any)
	for name := range properties {
		*names = append(*names, name)
	}
	for _, word := range []string{"allOf", "oneOf", "anyOf"} {
		parts, _ := schema[word].([]any)
		for _, part := range parts {
			d.fields(part, names)
		}
	}
}
