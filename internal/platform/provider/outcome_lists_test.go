package provider

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPrepare_Outcomes: what a call says of statuses is taken over whole, or refused with the reason.
func TestPrepare_Outcomes(t *testing.T) {
	t.Parallel()
	svc, act := action(t, testCatalog(t), "core__http__request")
	for outcome, want := range map[string]any{
		`null`: map[int]Kind(nil),
		`{}`:   map[int]Kind{},
		`{"success":[409,304],"refused":[202],"retry":[423],"unclear":[404]}`: map[int]Kind{409: Success, 304: Success,
			202: Refused,
			423: NotArrived, 404: Unknown},
		`[]`:                              "lists",
		`"success"`:                       "lists",
		`{"success":409}`:                 "lists",
		`{"done":[409]}`:                  "lists",
		`{"success":[99]}`:                "99 is no status",
		`{"success":["409"]}`:             `"409" is no status`,
		`{"retry":[409],"refused":[409]}`: "409 stands there twice",
	} {
		r, err := Prepare(svc, act, json.RawMessage(`{"url":"http://a.example/","outcome":`+outcome+`}`), nil, Secret{},
			"")
		if text, bad := want.(string); bad {
			require.ErrorIs(t, err, ErrParams, outcome)
			assert.ErrorContains(t, err, text)
			continue
		}
		require.NoError(t, err, outcome)
		assert.Equal(t, want, r.outcomes, outcome)
	}
}
