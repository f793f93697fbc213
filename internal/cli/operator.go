package cli

import "flowlane/internal/app"

// defaultOperatorListen is where operators look at a process unless it is told another address.
const defaultOperatorListen = "127.0.0.1:9464"

// operators are the flags of what operators look at.
type operators struct {
	OperatorListen string `name:"operator-listen" env:"FLOWLANE_OPERATOR_LISTEN" help:"HOST:PORT of health, metrics and profiles; none means nowhere. Default: 127.0.0.1:9464, or a free port if that is taken."`
	OperatorToken  string `name:"operator-token" env:"FLOWLANE_OPERATOR_TOKEN" help:"What requests for metrics and profiles must bring as a bearer token; required unless they are served on a loopback address."`
}

func (o operators) config() app.Operator {
	out := app.Operator{Listen: o.OperatorListen, Token: o.OperatorToken}
	switch out.Listen {
	case "":
		out.Listen, out.OrFree = defaultOperatorListen, true
	case "none":
		out.Listen = ""
	}
	return out
}
