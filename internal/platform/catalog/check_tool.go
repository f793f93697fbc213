package catalog

import "reflect"

// kindMCP is that of services that speak the Model Context Protocol over HTTP.
const kindMCP = "mcp"

// toolRefused are the statuses by which such a server says that it did not begin a call.
var toolRefused = []int{400, 401, 402, 403, 404, 405, 406, 409, 410, 411, 413, 414, 415, 421, 422, 426, 428, 431, 451,
	501, 505}

// tool checks the call of a tool, and fills in what follows from the protocol.
func (ch *checker) tool(s *Service, a *Action, at path) {
	if s.BaseURL == "" {
		ch.fail(at, "a tool needs the base_url of the service: the address of the server's endpoint")
	}
	if s.Protocol != "REST" {
		ch.fail(at, "the protocol of a service of kind mcp reads REST")
	}
	ch.need(at, "tool", a.Call.Tool)
	call := *a.Call
	call.Tool, call.TimeoutSeconds, call.MaxInFlight, call.ExclusiveOver, call.OutcomeCases = "", 0, 0, "", nil
	if a.Bulk || !reflect.DeepEqual(call, Call{}) {
		ch.fail(at, "the call of a tool has tool, timeout_seconds, max_in_flight, "+
			"exclusive_over and outcome_cases; nothing else")
	}
	a.Call.Answer = Answer{Success: []int{200}, Refused: toolRefused}
}
