package cli

import (
	"context"
	"net"

	"flowlane/internal/app"
)

// defaultOperatorListen is where operators look at a process unless it is told another address.
const defaultOperatorListen = "127.0.0.1:9464"

// operators are the flags of what operators look at.
type operators struct {
	OperatorListen string `name:"operator-listen" env:"FLOWLANE_OPERATOR_LISTEN" help:"HOST:PORT of health, metrics and profiles; none means nowhere. Default: 127.0.0.1:9464, or a free port if that is taken."`
	OperatorToken  string `name:"operator-token" env:"FLOWLANE_OPERATOR_TOKEN" help:"What requests for metrics and profiles must bring as a bearer token; required unless they are served on a loopback address."`
}

func (o operators) config(ctx context.Context, p *process) app.Operator {
	out := app.Operator{Listen: o.OperatorListen, Token: o.OperatorToken}
	switch out.Listen {
	case "":
		out.Listen = p.freeAddress(ctx, defaultOperatorListen, "the operators' pages")
	case "none":
		out.Listen = ""
	}
	return out
}

// freeAddress returns an address of this machine where nothing listens: the one that is preferred, or one with port 0.
func (p *process) freeAddress(ctx context.Context, preferred, what string) string {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", preferred)
	if err != nil {
		p.log.Warn("the port is taken; another one is used", "for", what, "address", preferred)
		return "127.0.0.1:0"
	}
	_ = l.Close()
	return preferred
}
