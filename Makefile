# Everything is built and tested with the toolchain that go.mod names; go fetches it.
export GOTOOLCHAIN ?= auto
# The sidecar needs no C; only the race detector does.
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -X main.version=$(VERSION)

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## build the sidecar: bin/throttler
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/throttler ./cmd/throttler

.PHONY: run
run: build ## show the main job: signed payment calls, straight and through the sidecar
	go run ./cmd/demo -throttler bin/throttler

.PHONY: test
test: ## run all tests with the race detector
	go test -race ./...

.PHONY: again
again: ## run the Go tests three times: a test that fails once in many runs is a bug
	go test -count=3 ./...

.PHONY: lint
lint: ## check formatting, vet and staticcheck
	@test -z "$$(gofmt -l .)" || { gofmt -l .; echo "gofmt would change these files: run make fmt"; exit 1; }
	go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	go mod tidy -diff

.PHONY: fmt
fmt: ## format the code
	gofmt -w .

.PHONY: fuzz
fuzz: ## fuzz the ledger and the wheel for a minute each
	go test ./pkg/quota -run '^$$' -fuzz FuzzLedger -fuzztime 1m
	go test ./pkg/wheel -run '^$$' -fuzz Fuzz -fuzztime 1m

.PHONY: bench
bench: ## run the benchmarks
	go test -run '^$$' -bench . -benchmem ./pkg/...

.PHONY: bench-plan
bench-plan: ## preview a million calls under three limits with 1,000 keys
	go test ./internal/preview -run '^$$' -bench Run -benchtime 1000000x

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
