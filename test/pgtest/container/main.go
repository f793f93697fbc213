// Command container is the supervisor of the shared test server on machines without Postgres programs: it runs the
// server in a container, as long as tests use it. Package pgtest starts it.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/modules/postgres"

	"flowlane/test/pgtest/shared"
)

const image = "postgres:17-alpine"

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: container FOLDER")
		os.Exit(2)
	}
	if err := shared.Serve(os.Args[1], start); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func start(ctx context.Context) (string, func(context.Context), error) {
	server, err := postgres.Run(ctx, image,
		postgres.WithDatabase("flowlane"), postgres.WithUsername("flowlane"), postgres.WithPassword("flowlane"),
		testcontainers.WithCmd("postgres", "-c", "fsync=off", "-c", "synchronous_commit=off", "-c",
			"full_page_writes=off", "-c", "max_connections=300"),
		postgres.BasicWaitStrategies())
	if err != nil {
		return "", nil, fmt.Errorf("run %s: %w", image, err)
	}
	stop := func(ctx context.Context) {
		if err := server.Terminate(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	dsn, err := server.ConnectionString(ctx, "sslmode=disable")
	if err != nil {
		stop(ctx)
		return "", nil, fmt.Errorf("find the address of the container: %w", err)
	}
	return dsn, stop, nil
}
