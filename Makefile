# rollout: `make` lists what there is to make.

GO          ?= go
STATICCHECK ?= honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 10s
DEMO        ?= out/demo
# The package of the seeded simulation, and its seed; no seed is the test's own list.
SIM_PKG     ?= ./localstack/sim
SEED        ?=
BENCH       ?= .

BUILD = CGO_ENABLED=0 $(GO) build -trimpath

.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

preflight: ## name what is missing on this machine
	@bash scripts/preflight/preflight.sh

build: preflight ## build bin/rollout, bin/gpuworker and the test server bin/fakellm
	$(BUILD) -o bin/rollout ./scripts/rollout
	$(BUILD) -o bin/gpuworker ./gpuworker
	$(BUILD) -o bin/fakellm ./scripts/fakellm

run: build ## answer examples/prompts.jsonl with the model that is built in, in out/demo
	@bash scripts/run/run.sh $(DEMO)

# Folders of nested modules whose tests need no more than Go.
EMULATORS    = localstack/aws
# Where the second opinions on the cloud drivers are installed, and what asks
# for them: a test of its own target, which CI must not pass without them.
SECOND       ?= out/emulators
SECOND_TESTS = TestMiniStack|TestDynalite|TestFauxqs

test: ## run all tests
	$(GO) test -timeout 10m ./...
	cd $(EMULATORS) && $(GO) test -timeout 10m -skip '$(SECOND_TESTS)|TestDeployLocal' $$($(GO) list ./... | grep -v /e2e$$)
	cd $(EMULATORS) && $(GO) test -timeout 10m ./e2e # by itself: it keeps a machine busy

test-emulators: ## test the cloud drivers against second opinions as well, which it installs in out/emulators (needs Python 3.11), and 20 disturbed runs
	@GO="$(GO)" bash scripts/emulators/test.sh $(SECOND) '$(SECOND_TESTS)'
	cd $(EMULATORS) && $(GO) test -count=1 -timeout 10m -run TestDisturbedRuns ./e2e -args -rounds 20
.PHONY: test-emulators

INFRA ?= out/infra

test-infra: ## test the stack of AWS: synthesize it and hold it to its promises, with what it installs in out/infra (needs Python 3.11)
	@GO="$(GO)" bash scripts/infra/test.sh $(INFRA)
.PHONY: test-infra

deploy-local: ## deploy the stack of AWS into an emulator here, run a job through it, and compare its answers with a laptop's
	@GO="$(GO)" bash scripts/deploylocal/deploylocal.sh $(SECOND) $(INFRA)
.PHONY: deploy-local

machine-worker: ## build the worker of the machines on AWS, out/machine/gpuworker
	GOOS=linux GOARCH=amd64 $(BUILD) -ldflags '-s -w' -o out/machine/gpuworker ./gpuworker
.PHONY: machine-worker

test-peers: ## test the benchmark of the peers, which needs a Postgres
	cd scripts/bench/peers && $(GO) vet ./... && $(GO) test ./...

llamacpp: ## fetch llama.cpp into out/llamacpp, to compare the tiny engine with it
	@bash localstack/interop/llamacpp/install.sh

test-llamacpp: llamacpp ## test that llama.cpp gives an exported model's ids and tokens
	cd localstack/interop/llamacpp/peer && $(GO) vet ./...
	$(GO) test ./localstack/interop/llamacpp

huggingface: ## fetch Hugging Face's readers into out/huggingface, to try exported folders
	@bash localstack/interop/huggingface/install.sh

test-huggingface: huggingface ## test that Hugging Face's libraries read an exported model
	$(GO) test ./localstack/interop/huggingface

openai-client: ## fetch OpenAI's Python client into out/openaiclient, to try it on rollout serve
	@bash localstack/interop/openaiclient/install.sh

test-openai-client: openai-client ## test that OpenAI's Python client works with rollout serve
	$(GO) test ./localstack/interop/openaiclient

test-arm64: ## check that training and sampling on arm64, emulated, have the bits of every other machine (needs qemu-user-static)
	@command -v qemu-aarch64-static >/dev/null || { echo "test-arm64: qemu-aarch64-static is not installed: on Debian, apt-get install qemu-user-static"; exit 1; }
	GOARCH=arm64 CGO_ENABLED=0 $(GO) test -timeout 10m -exec qemu-aarch64-static -run 'Golden/scalar/2_threads|RightTo|Formula|SameAnywhere' \
	  ./gpuworker/tinylm/kernel ./gpuworker/tinylm/sampling ./gpuworker/tinylm/model ./gpuworker/tinylm/optimize ./gpuworker/training

IMAGE      ?= rollout/gpuworker
IMAGE_ARCH ?= amd64
image: ## build the worker's image IMAGE with Docker or Podman, for IMAGE_ARCH
	@bash scripts/image/image.sh $(IMAGE) $(IMAGE_ARCH)
.PHONY: image

# Functions of AWS Lambda, each a build of functions/aws/NAME for the processors
# that the stack has; emulators run them on this machine.
FUNCTIONS    = submit plan coordinate finalize reclaim interrupt api
LAMBDA_ARCH ?= arm64
LAMBDA_OUT  ?= out/lambda
LAMBDA_HOST  = out/lambda-$(shell $(GO) env GOARCH)

lambda: ## build the functions of AWS Lambda in out/lambda (LAMBDA_ARCH=amd64 LAMBDA_OUT=folder for others)
	@for f in $(FUNCTIONS); do \
	  CGO_ENABLED=0 GOOS=linux GOARCH=$(LAMBDA_ARCH) $(GO) build -trimpath -tags lambda.norpc -ldflags '-s -w' -o $(LAMBDA_OUT)/$$f/bootstrap ./functions/aws/$$f || exit 1; \
	done

lambda-check: lambda ## check how large the functions of AWS Lambda are, and how fast they start on this machine (Linux)
	@$(MAKE) --no-print-directory lambda LAMBDA_ARCH=$$($(GO) env GOARCH) LAMBDA_OUT=$(LAMBDA_HOST)
	@$(GO) run ./scripts/lambda $(LAMBDA_OUT) $(LAMBDA_HOST)
.PHONY: lambda lambda-check

race: ## run all tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -timeout 20m $$($(GO) list ./... | grep -v localstack/sim)
	CGO_ENABLED=1 $(GO) test -race -timeout 20m -run TestSimulation $(SIM_PKG) -args -seeds 100

smoke: build ## kill a worker in the middle of a run, check that it is found in time and nothing is lost
	@bash scripts/smoke/smoke.sh

lint: ## check format, vet, staticcheck and the arrows between packages
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); \
	  if [ -n "$$unformatted" ]; then echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	cd $(EMULATORS) && $(GO) vet ./... && $(GO) run $(STATICCHECK) ./...
	$(GO) test ./scripts/imports

bench: ## measure the product against its goals and its peers: a table, and figures in out/bench (SAMPLES=n ONLY=measures ROUNDS=n)
	$(GO) run ./scripts/bench $(if $(SAMPLES),-n $(SAMPLES)) $(if $(ONLY),--only $(ONLY)) $(if $(ROUNDS),--rounds $(ROUNDS))

bench-compare: ## compare two files of figures (OLD=file NEW=file) with benchstat
	$(GO) run ./scripts/bench compare $(OLD) $(NEW)

microbench: ## run the benchmarks of single packages (BENCH=pattern)
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem ./...

cost: ## count what a run and an idle minute ask of AWS, and price it (COST="-shards 128 -json")
	cd $(EMULATORS) && $(GO) run ./cost $(COST)
.PHONY: cost

fuzz: ## fuzz every parser for FUZZTIME each
	@GO="$(GO)" bash scripts/fuzz/fuzz.sh $(FUZZTIME)

vuln: ## look up known vulnerabilities in what the programs call
	@GO="$(GO)" bash scripts/vuln/vuln.sh

sim: ## simulate the whole system with faults (SEED=n repeats one history)
	$(GO) test -count=1 -timeout 10m -v -run TestSimulation $(SIM_PKG) $(if $(SEED),-args -seed $(SEED))

generate: ## write the JSON Schemas of events anew
	$(GO) generate ./events

model-corpus: ## make the documents and the tokenizer of the shipped model, in out/model
	@GO="$(GO)" bash scripts/tinymodel/corpus/corpus.sh

model-train: ## train the shipped model anew, in out/model/run (hours of a processor; it can be stopped and resumed)
	$(GO) run ./scripts/tinymodel pretrain --resume

clean: ## remove what was built and run here
	rm -rf bin out/demo coverage.out

.PHONY: help preflight build run test test-peers llamacpp test-llamacpp huggingface test-huggingface openai-client test-openai-client test-arm64 race smoke lint bench bench-compare microbench fuzz vuln sim generate model-corpus model-train clean
