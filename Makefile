# `make` lists the targets.

GO          ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
MISSPELL    ?= github.com/golangci/misspell/cmd/misspell@v0.8.0

BUILD = CGO_ENABLED=0 $(GO) build -trimpath

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-19s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
.PHONY: help

## Build

preflight: ## name what is missing on this machine
	@bash scripts/preflight/preflight.sh
.PHONY: preflight

build: preflight ## build bin/rollout, bin/gpuworker and the fake inference server bin/fakellm
	$(BUILD) -o bin/rollout ./scripts/rollout
	$(BUILD) -o bin/gpuworker ./gpuworker
	$(BUILD) -o bin/fakellm ./scripts/fakellm
.PHONY: build

DEMO ?= out/demo
run: build ## answer examples/prompts.jsonl with the built-in model, in out/demo
	@bash scripts/run/run.sh $(DEMO)
.PHONY: run

DEMO_ROLLOUT ?= out/demo-rollout
demo-rollout: build ## run a rollout that learns from examples/refunds.jsonl, with a scripted model, in out/demo-rollout
	@bash scripts/run/rollout.sh $(DEMO_ROLLOUT)
.PHONY: demo-rollout

DEMO_TRIALS ?= out/demo-trials
demo-trials: build ## compare three variants on examples/trials.jsonl, with a scripted model, in out/demo-trials
	@bash scripts/run/trials.sh $(DEMO_TRIALS)
.PHONY: demo-trials

machine-worker: ## build the worker for machines in a cloud, out/machine/gpuworker
	GOOS=linux GOARCH=amd64 $(BUILD) -ldflags '-s -w' -o out/machine/gpuworker ./gpuworker
.PHONY: machine-worker

IMAGE      ?= rollout/gpuworker
IMAGE_ARCH ?= amd64
image: ## build the worker's container image with Docker or Podman (IMAGE=name IMAGE_ARCH=arm64)
	@bash scripts/image/image.sh $(IMAGE) $(IMAGE_ARCH)
.PHONY: image

# The Lambda functions, each a program in functions/aws/NAME for the processors
# that the stack has. lambda-check also builds them for this machine.
FUNCTIONS    = submit plan coordinate finalize reclaim interrupt api
LAMBDA_ARCH ?= arm64
LAMBDA_OUT  ?= out/lambda
LAMBDA_HOST  = out/lambda-$(shell $(GO) env GOARCH)

lambda: ## build the Lambda functions in out/lambda (LAMBDA_ARCH=amd64 LAMBDA_OUT=folder)
	@for f in $(FUNCTIONS); do \
	  CGO_ENABLED=0 GOOS=linux GOARCH=$(LAMBDA_ARCH) $(GO) build -trimpath -tags lambda.norpc -ldflags '-s -w' \
	    -o $(LAMBDA_OUT)/$$f/bootstrap ./functions/aws/$$f || exit 1; \
	done
.PHONY: lambda

lambda-check: lambda ## check the size of the Lambda functions, and their start time on this machine (Linux)
	@$(MAKE) --no-print-directory lambda LAMBDA_ARCH=$$($(GO) env GOARCH) LAMBDA_OUT=$(LAMBDA_HOST)
	@$(GO) run ./scripts/lambda $(LAMBDA_OUT) $(LAMBDA_HOST)
.PHONY: lambda-check

BUF ?= github.com/bufbuild/buf/cmd/buf@v1.59.0
generate: ## write the JSON Schemas of events and the code of the ports' protocol again
	$(GO) generate ./events
	cd shared/remote && $(GO) run $(BUF) generate
.PHONY: generate

clean: ## remove what was built and run here
	rm -rf bin out/demo out/demo-rollout out/demo-trials out/dist coverage.out
.PHONY: clean

## Release

# Archives are built with the Go version of go.mod, because another one gives
# other bytes. DIST_GO=local takes the version that is installed.
DIST_GO ?= $(shell awk '$$1 == "toolchain" { print $$2 }' go.mod)
DIST    ?= out/dist
dist: ## build reproducible release archives, SBOMs and checksums in out/dist (DIST=folder)
	GOTOOLCHAIN=$(DIST_GO) $(GO) run ./scripts/dist -o $(DIST)
.PHONY: dist

licenses: ## write the modules that the programs link, and their licences, into scripts/licenses/modules.txt
	$(GO) test -count=1 ./scripts/licenses -update
.PHONY: licenses

## Check

# The test of licences is never cached, because `go test` does not know which
# packages the programs link.
lint: ## check format, vet, staticcheck, spelling, links, imports, licences and dead code
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	cd $(EMULATORS) && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...
	cd $(EMULATORS_GCP) && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...
	cd $(BROWSER) && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...
	@$(GO) run $(MISSPELL) -error $$(git ls-files '*.go' '*.md' '*.sh' '*.toml' '*.yml' Makefile ':!*testdata*')
	$(GO) test ./scripts/imports ./scripts/docs
	$(GO) test -count=1 ./scripts/licenses
	@GO="$(GO)" bash scripts/deadcode/deadcode.sh
.PHONY: lint

vuln: ## look up known vulnerabilities in what the programs call
	@GO="$(GO)" bash scripts/vuln/vuln.sh
.PHONY: vuln

FUZZTIME ?= 10s
fuzz: ## fuzz every parser for FUZZTIME each
	@GO="$(GO)" bash scripts/fuzz/fuzz.sh $(FUZZTIME)
.PHONY: fuzz

## Test

# EMULATORS and EMULATORS_GCP are the nested modules whose tests need nothing but Go.
# Tests of the former against other emulators have a target of their own,
# test-emulators.
EMULATORS            = localstack/aws
EMULATORS_GCP        = localstack/gcp
OTHER_EMULATORS     ?= out/emulators
OTHER_EMULATOR_TESTS = TestMiniStack|TestDynalite|TestFauxqs

test: ## run all tests that need nothing but Go
	$(GO) test -timeout 20m ./... # localstack/e2e keeps a small machine busy for minutes
	cd $(EMULATORS) && $(GO) test -timeout 30m -skip '$(OTHER_EMULATOR_TESTS)|TestDeployLocal' $$($(GO) list ./... | grep -v /e2e$$)
	cd $(EMULATORS) && $(GO) test -timeout 30m ./e2e # alone: it keeps the machine busy
	cd $(EMULATORS_GCP) && $(GO) test -timeout 10m -skip 'TestDeployLocal|TestGrants' $$($(GO) list ./... | grep -v /e2e$$)
	cd $(EMULATORS_GCP) && $(GO) test -timeout 30m ./e2e
.PHONY: test

# The package of the seeded simulation, and its seed; without one the test uses
# its own list.
SIM_PKG ?= ./localstack/sim
SEED    ?=

race: ## run all tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 20m $$($(GO) list ./... | grep -v localstack/sim)
	CGO_ENABLED=1 $(GO) test -race -timeout 20m -run TestSimulation $(SIM_PKG) -args -seeds 100
.PHONY: race

sim: ## simulate the whole system with faults (SEED=n repeats one history)
	$(GO) test -count=1 -timeout 10m -v -run TestSimulation $(SIM_PKG) $(if $(SEED),-args -seed $(SEED))
.PHONY: sim

# MUTANTS are further flags, such as -run 'fence' or -simulation.
mutants: ## check that the simulation and the unit tests notice each fault of scripts/mutants/mutants.toml (5 minutes on two idle cores)
	$(GO) run ./scripts/mutants -go "$(GO)" $(MUTANTS)
.PHONY: mutants

smoke: build ## kill a worker in the middle of a run and check that nothing is lost
	@bash scripts/smoke/smoke.sh
.PHONY: smoke

plugins: ## build the sample plugin in WebAssembly
	GOOS=wasip1 GOARCH=wasm CGO_ENABLED=0 $(GO) build -trimpath -ldflags=-s -buildmode=c-shared \
		-o examples/plugins/brevity/brevity.wasm ./examples/plugins/brevity
.PHONY: plugins

test-dist: ## build a release archive in two folders and check that the bytes are the same (needs git)
	ROLLOUT_TEST_DIST=1 $(GO) test -count=1 -timeout 10m ./scripts/dist
.PHONY: test-dist

test-emulators: ## test the AWS drivers against three emulators, installed in out/emulators (needs Python 3.11), and disturbed runs in both clouds
	@GO="$(GO)" bash scripts/emulators/test.sh $(OTHER_EMULATORS) '$(OTHER_EMULATOR_TESTS)'
	cd $(EMULATORS) && $(GO) test -count=1 -timeout 10m -run TestDisturbedRuns ./e2e -args -rounds 20
	cd $(EMULATORS_GCP) && $(GO) test -count=1 -timeout 20m -run TestDisturbedRuns ./e2e -args -rounds 9 # one of each kind
.PHONY: test-emulators

INFRA ?= out/infra
test-infra: ## synthesize the AWS stack, plan the Google Cloud deployment and check both, with tools installed in out/infra (needs Python 3.11)
	@GO="$(GO)" bash scripts/infra/test.sh $(INFRA)
.PHONY: test-infra

# CLOUD is aws or gcp; empty takes both.
CLOUD ?=
deploy-local: ## deploy into emulators of AWS and Google Cloud here, and compare the files of a batch and of a rollout with those of local runs
	@GO="$(GO)" bash scripts/deploylocal/deploylocal.sh $(OTHER_EMULATORS) $(INFRA) $(CLOUD)
.PHONY: deploy-local

# BROWSER is the nested module of the tests that a browser runs in.
BROWSER = localstack/browser

test-browser: ## test what a browser shows, with Chromium, which it installs (needs Debian); screenshots in out/browser
	@GO="$(GO)" bash scripts/browser/test.sh
.PHONY: test-browser

test-peers: ## test the benchmark of other systems (needs Postgres)
	cd scripts/bench/peers && $(GO) vet ./... && $(GO) test ./...
.PHONY: test-peers

llamacpp: ## install llama.cpp in out/llamacpp (needs npm)
	@bash localstack/interop/llamacpp/install.sh
.PHONY: llamacpp

test-llamacpp: llamacpp ## test that llama.cpp gives the same ids and tokens for an exported model
	cd localstack/interop/llamacpp/peer && $(GO) vet ./...
	$(GO) test ./localstack/interop/llamacpp
.PHONY: test-llamacpp

huggingface: ## install Hugging Face's libraries in out/huggingface (needs Python 3.11)
	@bash localstack/interop/huggingface/install.sh
.PHONY: huggingface

duckdb: ## install DuckDB in out/duckdb (needs Python 3.11)
	@bash localstack/interop/duckdb/install.sh
.PHONY: duckdb

test-huggingface: huggingface duckdb ## test that Hugging Face's libraries read an exported model, and DuckDB a run's facts
	$(GO) test ./localstack/interop/huggingface ./localstack/interop/duckdb
.PHONY: test-huggingface

openai-client: ## install OpenAI's clients for Python and Node in out/openaiclient (needs Python 3.11)
	@bash localstack/interop/openaiclient/install.sh
.PHONY: openai-client

test-openai-client: openai-client ## test that OpenAI's clients for Python and Node work with rollout serve and rollout up
	$(GO) test ./localstack/interop/openaiclient
.PHONY: test-openai-client

llamacpp-server: ## build llama.cpp's server in out/llamacpp-server (needs Python 3 and a C++ compiler; 15 minutes)
	@bash localstack/servers/llamacpp/install.sh
.PHONY: llamacpp-server

test-llamacpp-server: llamacpp-server ## test the product against llama.cpp's server
	ROLLOUT_TEST_SERVER=llamacpp $(GO) test -count=1 -v -timeout 60m ./localstack/servers
.PHONY: test-llamacpp-server

vllm: ## install vLLM for processors in out/vllm (needs Linux on x86-64, AVX2, Python 3.11; 10 minutes, 8 GB)
	@bash localstack/servers/vllm/install.sh
.PHONY: vllm

test-vllm: vllm ## test the product against vLLM
	ROLLOUT_TEST_SERVER=vllm $(GO) test -count=1 -v -timeout 60m ./localstack/servers
.PHONY: test-vllm

# Tests of the model, the trainer and the rules of rollouts whose results must not depend on the processor.
ARM64_TESTS    = TestExpIsWithinTwoUnitsInTheLastPlace|TestDrawsHaveTheGoldenDigest|TestAdamWFollowsItsFormula|TestSGDFollowsItsFormula|TestTenTrainingStepsHaveTheGoldenDigest/scalar/2_threads|TestTrainingsHaveTheGoldenDigests/scalar/2_threads|TestTailsHaveTheGoldenDigest|TestVerdictsHaveTheGoldenBits|TestStatsHaveTheGoldenDigest
ARM64_PACKAGES = ./gpuworker/tinylm/kernel ./gpuworker/tinylm/sampling ./gpuworker/tinylm/model ./gpuworker/tinylm/optimize ./gpuworker/training ./shared/core/gate ./shared/core/selection

test-arm64: ## check that training, sampling, selection and the gate on emulated arm64 give the same bits (needs qemu-user-static)
	@command -v qemu-aarch64-static >/dev/null || \
	  { echo "test-arm64: qemu-aarch64-static is not installed: on Debian, apt-get install qemu-user-static"; exit 1; }
	GOARCH=arm64 CGO_ENABLED=0 $(GO) test -timeout 10m -exec qemu-aarch64-static -run '$(ARM64_TESTS)' $(ARM64_PACKAGES)
.PHONY: test-arm64

## Measure

bench: ## measure against the goals and other systems; figures in out/bench (SAMPLES=n ONLY=measures ROUNDS=n)
	$(GO) run ./scripts/bench $(if $(SAMPLES),-n $(SAMPLES)) $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS))
.PHONY: bench

MODEL_MIB ?= 2000
bench-models: ## measure storing a model in the bucket and fetching it, over the emulator of S3 (MODEL_MIB=2000)
	cd $(EMULATORS) && MODEL_MIB=$(MODEL_MIB) $(GO) test -run '^$$' -bench ModelInABucket -benchtime 1x -timeout 30m .
.PHONY: bench-models

bench-compare: ## compare two files of figures with benchstat (OLD=file NEW=file)
	$(GO) run ./scripts/bench compare $(OLD) $(NEW)
.PHONY: bench-compare

BENCH ?= .
microbench: ## run the benchmarks of single packages (BENCH=pattern)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...
.PHONY: microbench

bench-pipeline: ## check that the stages of a pipeline overlap, and what its messages cost
	$(GO) test -run '^$$' -bench Pipeline -benchtime 1x ./gpuworker/pipeline/...
.PHONY: bench-pipeline

cost: ## count the requests of a run and of an idle minute, and their price, on AWS (COST="-shards 128 -json") and Google Cloud
	cd $(EMULATORS) && $(GO) run ./cost $(COST)
	cd $(EMULATORS_GCP) && $(GO) test -count=1 -v -timeout 30m -run '^TestCost(OfTraining)?$$' ./e2e -args -cost
.PHONY: cost

## The built-in model

model-corpus: ## make the documents and the tokenizer of the built-in model, in out/model
	@GO="$(GO)" bash scripts/tinymodel/corpus/corpus.sh
.PHONY: model-corpus

model-train: ## train the built-in model again, in out/model/run (hours; interrupt and repeat it to continue)
	$(GO) run ./scripts/tinymodel pretrain --resume
.PHONY: model-train
