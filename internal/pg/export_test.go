package pg

// Pause is the time between two attempts to get a lock.
var Pause = pause

// For tests: the role is another than that of the server, which all databases share.
var (
	GrantOps     = grantOps
	OpsAdviceFor = opsAdvice
)
