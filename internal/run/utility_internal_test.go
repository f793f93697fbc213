package run

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// What a flow says of a record that it fails is readable, whatever an expression gave.
func TestFail_Message(t *testing.T) {
	t.Parallel()
	for params, want := range map[string]string{
		`{"message":"no é"}`:       "no é",
		`{"message":5}`:            "5",
		`{"message":{"a":[true]}}`: `{"a":[true]}`,
		`{"message":"a\u0000b"}`:   "a\ufffdb",
		`{"message":""}`:           "The flow failed the record, with an empty message",
		`{"message":null}`:         "The flow failed the record, with an empty message",
		`{}`:                       "The flow failed the record, with an empty message",
	} {
		_, err := utilities["fail"]([]byte(params))
		assert.EqualError(t, err, want, params)
	}
}
