SQLC = CGO_ENABLED=0 go tool -modfile=tools/go.mod sqlc

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: generate
generate: ## Generate gen/oas from openapi.yaml and gen/db from schema and queries
	go tool ogen --target gen/oas --package oas --clean --config ogen.yml openapi.yaml
	$(SQLC) generate

.PHONY: bench
bench: ## Measure the speed targets of docs/architecture.md; BENCH=regex picks some
	go run ./internal/bench -run '$(BENCH)'
