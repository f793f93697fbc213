// Command supply looks at what the program is made of: whether the licences of its parts are allowed, whether any has a
// known vulnerability, and which they are. It runs in the root of the repository.
//
//	supply licences                   checks the licences of the program's Go modules and the client's npm packages
//	supply vulnerabilities            asks govulncheck, or says what was not checked where its database is away
//	supply sbom BINARY FILE           writes the bill of materials of a binary, in CycloneDX
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 1 && args[0] == "licences":
		return licences(ctx)
	case len(args) == 1 && args[0] == "vulnerabilities":
		return vulnerabilities(ctx)
	case len(args) == 3 && args[0] == "sbom":
		return sbom(ctx, args[1], args[2])
	}
	return errors.New("usage: supply licences | vulnerabilities | sbom BINARY FILE")
}
