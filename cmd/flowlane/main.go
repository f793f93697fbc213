// Command flowlane is the whole service in one binary: `flowlane --help` lists its commands.
package main

import (
	"os"

	"flowlane/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:], os.Stdout, os.Stderr)) }
