package api

import "flowlane/gen/oas"

// pendingGroups stands for the groups whose handlers do not exist yet: calling one panics, which answers 500.
type pendingGroups struct {
	oas.BatchHandler
	oas.DefinitionHandler
	oas.DispatchHandler
	oas.ExecutionHandler
	oas.JobHandler
}
