GOLANGCI_LINT_VERSION = v2.11.0
# The hash of its module, which names those of all that it is made of.
GOLANGCI_LINT_SUM = h1:JEIfjAtuBEZdNsrEO1Uypuga7EFrqU3cjEA/YwmAyMw=
SPECMATIC_VERSION = 2.55.1
SPECMATIC_SHA512 = e1e2c3bd9aced84c023bf266d7ee5e8e1e8ab71699ef2a2de40e2e46b37962e7f9e36e2a3c7a99de4b5b913f378702ed3c03c54b109081f6221d1bc67b8d1ca5

# As programs, and not by `go tool`, which compiles with other flags than GOFLAGS says.
OGEN = go run github.com/ogen-go/ogen/cmd/ogen
SQLC = CGO_ENABLED=0 go run -modfile=tools/go.mod github.com/sqlc-dev/sqlc/cmd/sqlc
GOLANGCI_LINT = bin/golangci-lint-$(GOLANGCI_LINT_VERSION)
SPECMATIC = bin/specmatic-$(SPECMATIC_VERSION).jar
REDOCLY = REDOCLY_TELEMETRY=off REDOCLY_SUPPRESS_UPDATE_NOTICE=true tools/redocly/node_modules/.bin/redocly
REDOCLY_PACKAGES = tools/redocly/node_modules/.package-lock.json
GENERATORS = tools/generators
GENERATORS_PACKAGES = $(GENERATORS)/node_modules/.package-lock.json
SERVERS_PACKAGES = test/servers/node_modules/.package-lock.json
SUPPLY = tools/supply
DEPLOY = tools/deploy
SDK = sdk/typescript
SDK_PACKAGES = $(SDK)/node_modules/.package-lock.json
WEB = web
WEB_PACKAGES = $(WEB)/node_modules/.package-lock.json
GENERATED = gen internal/console/dist $(SDK)/src/gen $(SDK)/src/keyed.gen.ts sdk/go/models.gen.go sdk/go/operations.gen.go \
	sdk/python/flowlane/models.py sdk/python/flowlane/_operations.py
# Tests share one Postgres: on a large machine, fewer of them at once than there are processors.
AT_ONCE := $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); if [ "$$n" -gt 4 ]; then echo 4; else echo "$$n"; fi)
GO_TEST = go test -vet=off -ldflags=-w -timeout 80m -parallel $$(($(AT_ONCE) + 1))

.PHONY: help
help: ## Show this help
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# What the program is made of.
SOURCES = go.mod go.sum openapi.yaml internal/console/dist/index.html $(wildcard schema/*.sql internal/platform/catalog/data/*.yaml) \
	$(shell find . -name '*.go' -not -name '*_test.go' -not -path './bin/*' -not -path './.flowlane/*')

.PHONY: run
run: bin/flowlane ## Run the whole service here, on a Postgres of its own, and show the main job; Ctrl-C stops it
	@bin/flowlane dev --demo

.PHONY: demo
demo: bin/flowlane ## Run the main job on the server that FLOWLANE_URL names, or on the one that make run has started
	@bin/flowlane demo

.PHONY: build
build: bin/flowlane ## Build bin/flowlane

bin/flowlane: $(SOURCES)
	go build -o $@ ./cmd/flowlane

.PHONY: generate
generate: $(SDK_PACKAGES) $(WEB_PACKAGES) ## Generate gen/oas and the clients of sdk from openapi.yaml, gen/db from schema and queries, and the console from web
	$(OGEN) --target gen/oas --package oas --clean --config ogen.yml openapi.yaml
	$(SQLC) generate
	cd $(SDK) && npx --no-install openapi-ts
	go run ./cmd/sdkgen
	cd $(WEB) && npx --no-install vite build --logLevel warn

$(SDK_PACKAGES): $(SDK)/package-lock.json
	cd $(SDK) && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(WEB_PACKAGES): $(WEB)/package-lock.json
	cd $(WEB) && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(REDOCLY_PACKAGES): tools/redocly/package-lock.json
	cd tools/redocly && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(GENERATORS_PACKAGES): $(GENERATORS)/package-lock.json
	cd $(GENERATORS) && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

$(SERVERS_PACKAGES): test/servers/package-lock.json
	cd test/servers && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

.PHONY: verify
verify: generate $(REDOCLY_PACKAGES) $(SERVERS_PACKAGES) ## Fail when what is generated is not what its sources give, or on a flaw of modules, formatting, types or the API document
	@drift=$$(git status --porcelain -- $(GENERATED)) || exit 1; if [ -n "$$drift" ]; then git --no-pager diff --stat -- $(GENERATED); echo "$$drift"; \
		echo '$(GENERATED): this does not follow from its sources: run `make generate` and commit the result.' >&2; exit 1; fi
	@for f in gen/db/*.sql.go; do q=queries/$$(basename $$f .go); \
		[ -f $$q ] || { echo "$$f has no $$q any more: delete it." >&2; exit 1; }; done
	go mod verify
	go -C tools mod verify
	go -C $(SUPPLY) mod verify
	go -C $(GENERATORS) mod verify
	go -C $(DEPLOY) mod verify
	@files=$$(git ls-files '*.go') && bad=$$(gofmt -l $$files) || exit 1; if [ -n "$$bad" ]; then echo "$$bad"; \
		echo 'These files are not formatted: run `gofmt -w` on them.' >&2; exit 1; fi
	go -C sdk/go vet ./...
	cd $(SDK) && npx --no-install tsc --noEmit --project examples/tsconfig.json
	cd $(WEB) && npx --no-install tsc --noEmit
	$(REDOCLY) lint openapi.yaml

.PHONY: lint
lint: $(GOLANGCI_LINT) ## Run all linters, the import rules included; .golangci.yml says which and why
	@# What is generated is half of all lines: it is read where others use it, and not looked through.
	$(GOLANGCI_LINT) run $$(go list -f "{{.Dir}}" ./... | grep -v /gen/)

$(GOLANGCI_LINT):
	GOBIN=$(CURDIR)/bin go install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT_VERSION)
	@go version -m bin/golangci-lint | grep -qF '	$(GOLANGCI_LINT_VERSION)	$(GOLANGCI_LINT_SUM)' || \
		{ echo 'golangci-lint is not the one that the Makefile pins.' >&2; exit 1; }
	mv bin/golangci-lint $@

.PHONY: audit
audit: bin/supply ## Check the licences of all that is shipped, and look for known vulnerabilities where their database can be reached
	go -C $(SUPPLY) test ./...
	bin/supply licences
	bin/supply vulnerabilities

.PHONY: sbom
sbom: bin/flowlane bin/supply ## Write the bill of materials of bin/flowlane beside it, in CycloneDX
	bin/supply sbom bin/flowlane bin/flowlane.cdx.json

bin/supply: $(wildcard $(SUPPLY)/*.go $(SUPPLY)/*.json $(SUPPLY)/go.*)
	go -C $(SUPPLY) build -o $(CURDIR)/$@ .

# Any of docker, podman and buildah.
ENGINE = docker
IMAGE = flowlane

.PHONY: image
image: ## Build the image of deploy/Dockerfile; ENGINE=docker, podman or buildah, IMAGE=name
	$(ENGINE) build -f deploy/Dockerfile -t "$(IMAGE):$$(git describe --tags --always)" --build-arg SOURCE="$(SOURCE)" \
		--build-arg VERSION="$$(git describe --tags --always)" --build-arg REVISION="$$(git rev-parse HEAD)" $(BUILD_FLAGS) .

.PHONY: image-test
image-test: ## Build the image and try it as it is meant to run, as root; ENGINE=docker or podman; where no registry can be reached, with Debian's debootstrap
	ENGINE="$(ENGINE)" IMAGE="$(IMAGE)" BUILD_FLAGS="$(BUILD_FLAGS)" test/image.sh

.PHONY: docs
docs: ## Make a site of docs/ in bin/docs, to be published as it is; servers have it at /docs
	go run ./cmd/site bin/docs

.PHONY: deploy
deploy: bin/flowlane ## Check what is in deploy: the chart, the compose file, the unit, and that alerts fire; needs Debian's systemd and prometheus
	@# What it looks at is outside of its module, where Go does not see whether it has changed.
	go -C $(DEPLOY) test -count=1 ./...
	@# As `make test` calls it, so that the one takes what the other found.
	CI=true $(GO_TEST) ./test/deploy

.PHONY: test
test: ## Run all tests against a Postgres that they start (or FLOWLANE_TEST_DATABASE_URL names); TEST=flags adds flags
	@# The torture takes longest but for one and mostly waits: begun first, it runs beside the others and not after them. Vet is one of
	@# the linters. Without what debuggers read, programs are linked in two thirds of the time.
	$(GO_TEST) -p $(AT_ONCE) $(TEST) ./test/torture ./...
	go -C sdk/go test $(TEST) ./...

.PHONY: test-pooled
test-pooled: ## Run the tests of the API through a PgBouncer that hands out servers for transactions; POOLED=regex picks some
	FLOWLANE_TEST_POOLER=$${FLOWLANE_TEST_POOLER:-$$(command -v pgbouncer || echo /usr/sbin/pgbouncer)} \
		go test -count=1 -vet=off -ldflags=-w -timeout 80m -run '$(POOLED)' $(TEST) ./internal/api

.PHONY: simulate
simulate: ## Drive the pure rules through 5,000 weeks of virtual time; SEEDS=100
	go test -count=1 -v -timeout 60m -run 'TestWeek$$|TestForecast$$' ./test/simulation/ -args -seeds=$${SEEDS:-5000}

.PHONY: scale
scale: ## Reckon what a billion records a day ask of cells, from what was measured
	go run ./test/scale

.PHONY: torture
torture: ## Kill, stop and cut off real processes during runs, and look for rows that got lost or came twice; FLOWLANE_KILLS=200 FLOWLANE_DAYS=20 FLOWLANE_SCHEDULES=1000
	FLOWLANE_KILLS=$${FLOWLANE_KILLS:-200} FLOWLANE_DAYS=$${FLOWLANE_DAYS:-20} FLOWLANE_SCHEDULES=$${FLOWLANE_SCHEDULES-1000} go test -count=1 -v -timeout 120m -parallel 2 ./test/torture/

.PHONY: soak
soak: ## Send 300 signed messages a second for 30 minutes, beside large batches and schedules; FLOWLANE_SOAK=30m
	@mkdir -p bin
	FLOWLANE_SOAK=$${FLOWLANE_SOAK:-30m} FLOWLANE_SOAK_CSV=$(CURDIR)/bin/soak.csv \
		go test -count=1 -v -timeout 10h -run 'TestSoak$$' ./test/torture/

.PHONY: soak-picture
soak-picture: ## Draw the last soak anew for docs; needs Debian's gnuplot-nox
	gnuplot -e "samples='bin/soak.csv'" test/torture/soak.gnuplot > docs/pictures/soak.svg

.PHONY: ha
ha: ## Have Patroni, Postgres, etcd and processes fail one after the other under a load, as root, with Debian's patroni and etcd-server; FLOWLANE_HA_FAULTS=regex picks some
	FLOWLANE_HA=1 go test -count=1 -v -timeout 60m ./test/ha/

.PHONY: year
year: ## Live through every day of a year of everyday work and its housekeeping; what is kept must take no more room from then on
	FLOWLANE_YEAR_STRIDE=1 go test -count=1 -v -timeout 40m -run 'TestYear$$' ./internal/api/

.PHONY: contract
contract: bin/flowlane $(SPECMATIC) ## Hold the running service against openapi.yaml with Specmatic; needs Java 17; CONTRACT=regex picks operations
	go run ./test/contract -service bin/flowlane -specmatic $(SPECMATIC) -only '$(CONTRACT)'

$(SPECMATIC):
	mkdir -p bin/specmatic
	npm pack --silent --pack-destination bin/specmatic specmatic@$(SPECMATIC_VERSION)
	cd bin/specmatic && echo '$(SPECMATIC_SHA512)  specmatic-$(SPECMATIC_VERSION).tgz' | sha512sum -c -
	tar -xzf bin/specmatic/specmatic-$(SPECMATIC_VERSION).tgz -C bin/specmatic package/specmatic.jar
	mv bin/specmatic/package/specmatic.jar $@
	rm -r bin/specmatic

# ogen, @hey-api/openapi-ts and sdkgen generate in every make verify.
.PHONY: generators
generators: $(GENERATORS_PACKAGES) ## See that other generators make clients of openapi.yaml that compile
	rm -rf bin/generators
	cd $(GENERATORS) && npx --no-install openapi-typescript ../../openapi.yaml -o ../../bin/generators/openapi-typescript.ts
	cd $(GENERATORS) && npx --no-install orval --input ../../openapi.yaml --output ../../bin/generators/orval.ts --client fetch
	cd $(GENERATORS) && npx --no-install sta generate -p ../../openapi.yaml -o ../../bin/generators -n swagger-typescript-api.ts --silent
	@for f in openapi-typescript orval swagger-typescript-api; do \
		[ -s bin/generators/$$f.ts ] || { echo "$$f made nothing of openapi.yaml." >&2; exit 1; }; done
	cd $(GENERATORS) && npx --no-install tsc --noEmit --strict --skipLibCheck --target es2022 --module es2022 --moduleResolution bundler \
		--lib es2022,dom,dom.iterable ../../bin/generators/*.ts
	mkdir bin/generators/client && cp $(GENERATORS)/go.mod $(GENERATORS)/go.sum bin/generators
	go -C $(GENERATORS) run github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen -generate types,client -package client -o ../../bin/generators/client/client.go ../../openapi.yaml
	go -C bin/generators build ./client

.PHONY: console
console: bin/flowlane $(WEB_PACKAGES) $(SERVERS_PACKAGES) ## Try the console in a browser (Debian's chromium-headless-shell, or CHROMIUM) against a live server
	cd $(WEB) && npx --no-install vitest run test/
	@# A file of them that takes ten minutes hangs; what it left open then, or when its tests were over, must not hold up the others.
	cd $(WEB) && node --test --test-concurrency=2 --test-timeout=600000 --test-force-exit e2e/

.PHONY: pictures
pictures: bin/flowlane $(WEB_PACKAGES) ## Make the pictures of the console in docs/pictures anew, which its tests hold against its screens
	cd $(WEB) && FLOWLANE_PICTURES=true node --test e2e/pictures.test.mjs

.PHONY: bench
bench: ## Measure the speed targets of docs/measurements.md; BENCH=regex picks some
	go run ./test/bench -run '$(BENCH)'
