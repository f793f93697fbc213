package run

import (
	"encoding/json"
	"errors"
)

// Codes of job errors that this package gives.
const (
	CodeExpression = "expression_failed"
	CodeFlowFailed = "flow_failed"
)

// utilities are the in-process actions, by the name in the catalog: rendered parameters in, output out.
var utilities = map[string]func(params []byte) (json.RawMessage, error){
	"transform": func(params []byte) (json.RawMessage, error) {
		var p struct {
			Value json.RawMessage `json:"value"`
		}
		err := json.Unmarshal(params, &p)
		return p.Value, err
	},
	"fail": func(params []byte) (json.RawMessage, error) {
		var p struct {
			Message string `json:"message"`
		}
		if err := json.Unmarshal(params, &p); err != nil {
			return nil, err
		}
		return nil, errors.New(p.Message)
	},
}
