package pg

// For tests: the role is another than that of the server, which all databases share.
var (
	GrantOps     = grantOps
	OpsAdviceFor = opsAdvice
)
