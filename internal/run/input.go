package run

import (
	"strconv"
	"strings"

	"flowlane/internal/definition"
	"flowlane/internal/schema"
)

// CodeInput is the code of the error of a record that breaks its flow's input schema.
const CodeInput = "input_invalid"

// Bounds of what the error of a record tells.
const (
	problemsTold = 3
	placeTold    = 100
)

// CheckInput returns why a record cannot enter a step; nil where it can.
func CheckInput(step *definition.Step, record []byte) *JobError {
	if step.Input == nil {
		return nil
	}
	problems := step.Input.Check(record)
	if len(problems) == 0 {
		return nil
	}
	var told []string
	for i, p := range problems {
		if i == problemsTold {
			more := strconv.Itoa(len(problems) - i)
			if len(problems) >= schema.MaxProblems {
				more = "many"
			}
			told = append(told, "and "+more+" more")
			break
		}
		at := strings.Join(p.Path, ".")
		if at == "" {
			at = "the record"
		}
		if len(at) > placeTold {
			at = strings.ToValidUTF8(at[:placeTold], "") + "..."
		}
		told = append(told, at+" "+p.Message)
	}
	return &JobError{Code: CodeInput, Message: "The record does not fit the input schema: " + strings.Join(told, "; ")}
}
