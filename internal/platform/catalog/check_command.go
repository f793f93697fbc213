package catalog

import (
	"reflect"
	"slices"
)

// kindCLI is that of services whose actions run programs of the machine.
const kindCLI = "cli"

// The ways to read what a command writes.
const (
	StdoutText = "text"
	StdoutJSON = "json"
)

// maxArgs is how many arguments an action has at most.
const maxArgs = 200

// command checks the call of a command, and fills in what is left out. Whether the operator allows it shows when it is
// run.
func (ch *checker) command(s *Service, a *Action, at path) {
	if s.Protocol != "REST" || s.AuthMethod != "none" || s.BaseURL != "" {
		ch.fail(at, "a service of kind cli has protocol REST, auth_method none and no base_url: "+
			"the operator says what a command gets")
	}
	ch.need(at, "command", a.Call.Command)
	if a.Call.Stdout == "" {
		a.Call.Stdout = StdoutText
	}
	oneOf(ch, at, "stdout", a.Call.Stdout, []string{StdoutText, StdoutJSON})
	if len(a.Call.Args) > maxArgs {
		ch.fail(at.to("args"), "there are more than %d args", maxArgs)
	}
	call := *a.Call
	call.Command, call.Args, call.Stdin, call.Stdout, call.Exits = "", nil, nil, "", Exits{}
	call.TimeoutSeconds, call.MaxInFlight, call.ExclusiveOver, call.OutcomeCases = 0, 0, "", nil
	if a.Bulk || !reflect.DeepEqual(call, Call{}) {
		ch.fail(at, "the call of a command has command, args, stdin, stdout, exits, timeout_seconds, max_in_flight, "+
			"exclusive_over and outcome_cases; nothing else")
	}
	ch.exits(&a.Call.Exits, at.to("exits"))
	a.Call.Answer = Answer{Success: []int{200}} // of answers it has none
}

func (ch *checker) exits(e *Exits, at path) {
	if len(e.Success) == 0 {
		e.Success = []int{0}
	}
	all := slices.Concat(e.Success, e.Refused, e.Retry)
	for i, status := range all {
		if status < 0 || status > 255 || slices.Contains(all[:i], status) {
			ch.fail(at, "exit status %d: each is from 0 to 255 and stands in one list, once", status)
		}
	}
}
