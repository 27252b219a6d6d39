# brood: `make demo` shows what it does, `make test` passes the tests.
SHELL      := /bin/bash
.SHELLFLAGS := -euo pipefail -c
# One way of compiling for programs, tests and linters: each package is compiled once.
export CGO_ENABLED := 0
export GOFLAGS     := $(strip $(shell go env GOFLAGS) -trimpath)
DATA       := internal/payload/data
BROOD_FLAGS = -ldflags "-s -w -X brood/internal/edge/cli.Version=$(VERSION)"
GUEST_FLAGS := -buildvcs=false -ldflags "-s -w -buildid="
VERSION    ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
# Built by its makers: compiling it takes longer than all of brood.
BUF        := .cache/node/bin/buf
GOTEST     ?= go test -timeout 30m
# These fill the machine by themselves: one at a time. Of the others two.
HEAVY      := ./internal/sandbox/... ./test/...
LIGHT       = $$(go list ./... | grep -v -e /internal/sandbox/ -e /internal/sandbox$$ -e /test/)

.PHONY: build demo test race lint bench gen soak clean help runtime guest testdeps linters

help: ## show this list
	@awk -F':.*## ' '/^[a-z]+:.*## /{printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

runtime: ## build the runtime (our lean runsc) and the stock runsc for benchmarks
	@cd runtime && go run ./build ../$(DATA)

guest: ## build the guest program
	@GOOS=linux go build $(GUEST_FLAGS) -o $(DATA)/brood-guest ./cmd/brood-guest

build: runtime guest ## build bin/brood, with all that it carries inside
	@go build $(BROOD_FLAGS) -o .cache/brood-full ./cmd/brood-full
	@go run ./internal/program/pack .cache/brood-full internal/program/data
	@go build $(BROOD_FLAGS) -o bin/brood ./cmd/brood

demo: build ## save a running program and fork it sixteen times
	@./bin/brood demo

testdeps: build ## fetch what the tests drive (Node and its packages, pinned by integrity hash)
	@cd tools && go run ./npm --into ../.cache/node

test: testdeps ## run all tests
	$(GOTEST) -p 2 $(LIGHT)
	$(GOTEST) -p 1 $(HEAVY)
	cd runtime && $(GOTEST) -p 1 ./...
	cd tools && $(GOTEST) ./npm ./fuzzall ./crosscheck

race: testdeps ## run all tests under the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GOTEST) -p 1 -race ./...
	cd runtime && CGO_ENABLED=1 $(GOTEST) -p 1 -race ./...

$(BUF): tools/npm/package-lock.json
	@cd tools && go run ./npm --into ../.cache/node

linters: ## compile the linters
	@cd tools && go build -o ../.cache/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

lint: linters $(BUF) ## check formatting, vet, the linters, and that other platforms compile
	$(BUF) lint
	$(BUF) breaking --against api/released.binpb
	./.cache/golangci-lint run ./...
	cd runtime && ../.cache/golangci-lint run -c ../.golangci.yml ./...
	cd tools && go run ./crosscheck -root .. -tests linux/arm64
	cd tools && go run ./crosscheck -root .. darwin/arm64 darwin/amd64

bench: build ## measure forks against a bare runsc, in one run (as root)
	@cd runtime && go run ./build --stock ../bin/bare && mv ../bin/bare/runsc ../bin/runsc && rm -r ../bin/bare
	@./bin/brood bench fork --count 32

gen: $(BUF) ## generate code from the protocol files
	@cd tools && go build -o ../.cache/ google.golang.org/protobuf/cmd/protoc-gen-go connectrpc.com/connect/cmd/protoc-gen-connect-go
	PATH="$$PWD/.cache:$$PATH" $(BUF) generate

soak: build ## the long tests: all simulation seeds, the fuzzers for a minute each
	BROOD_SIM_SEEDS=10000 $(GOTEST) -count 1 -run Sim ./internal/sandbox/batch
	cd tools && go run ./fuzzall -root .. -time 60s

clean: ## remove what make made
	rm -rf bin .cache $(DATA)/brood-* internal/program/data/brood-*
