# The front door of etcdkit. `make` alone prints what it can do.
# Results go to stdout; announcements go to stderr.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PKGS        ?= ./...
VETPKGS     ?= $(PKGS)
TESTFLAGS   ?=
TESTTIMEOUT ?= 10m
# Most tests wait for clocks, so more of them go at once than there are processors, and two
# packages more.
PACKAGES    ?= $(shell expr $$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2) + 2)
PARALLEL    ?= 8
RACING      ?= 4
FUZZTIME    ?= 20s
BENCH       ?= .
BENCHTIME   ?= 1s
ROUNDS      ?= 3
SCALEROUNDS ?= $(ROUNDS)
NOTE        ?=
ARGS        ?=
PARTS       ?= test race etcd37 bench-test demos-test integration browser alerts alerts-day first-output stall chaos chaos-processes runbook seeds release-check mutants compat model fuzz
FILE        ?=
ONLY        ?=
OUT         ?=

STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ETCD37      := v3.7.3
ETCD37MOD   := .ci/etcd37.mod
ETCDCTL     := v3.6.16

# Says so on stderr when a command, usually a cold build, is slow.
patiently := .ci/patiently
# A command in front of go test. Ours shows how far it is and begins with the slow packages; that of
# .ci/run also runs a failed package once more, and measures.
RERUN       ?=
testing     = $(or $(RERUN),bin/gate test -order)
tool        = $(if $(RERUN),:,$(patiently) go build -o bin/gate ./internal/proof/gate)

# $(call holding,Fuzz) lists the package folders whose tests have such functions.
holding = { grep -rlE '^func $(1)[A-Z]' --include='*_test.go' . || true; } | xargs -r -n1 dirname | sort -u

.PHONY: help
help: ## Print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo
	@echo "  Variables: PKGS=$(PKGS) TESTFLAGS= TESTTIMEOUT=$(TESTTIMEOUT) FUZZTIME=$(FUZZTIME) BENCH=$(BENCH) BENCHTIME=$(BENCHTIME) ARGS="
	@echo "  EMBEDTEST_ENDPOINTS=host:port,... runs the tests against a cluster of yours (internal/proof/testing.md)."

.PHONY: demo
demo: ## Run a fleet of real processes under one limit, on an embedded etcd (ARGS="-limit 3")
	@$(patiently) go build -o bin/fleet ./examples/fleet
	@bin/fleet $(ARGS)

.PHONY: demo-cron
demo-cron: ## Run scheduled jobs in a fleet of real processes with wrong clocks, killed, paused and restarted (ARGS="-skew 1s")
	@$(patiently) go -C demos build -o ../bin/cron ./cron
	@bin/cron $(ARGS)

.PHONY: demo-payments
demo-payments: ## Send each payment five times at once to four real servers, while they and etcd fail, beside seven other ways (ARGS="-orders 40")
	@$(patiently) go -C demos build -o ../bin/payments ./payments
	@bin/payments $(ARGS)

.PHONY: demo-limits
demo-limits: ## Share limits among real processes that are killed and paused, while etcd fails; and among twenty users and a greedy one; under two minutes
	@$(patiently) go -C demos build -o ../bin/pods ./pods
	@$(patiently) go -C demos build -o ../bin/fair-users ./fair-users
	@bin/pods $(ARGS)
	@bin/fair-users $(ARGS)

.PHONY: demo-console
demo-console: ## Run a small shop with limits, jobs and payments, and serve the operators' page of it at a printed address, until ^C (ARGS="-listen 127.0.0.1:8080")
	@$(patiently) go build -o bin/console ./examples/console
	@bin/console $(ARGS)

.PHONY: seeds
seeds: ## Judge the five systems that etcdkit was written for, as fleets of real processes behind nginx; five minutes (ONLY="payments pods")
	@.ci/seeds $(ONLY)

.PHONY: test
test: ## Vet and run the tests of the main module; needs only Go
	@$(if $(VETPKGS),$(patiently) go vet $(VETPKGS))
	@$(tool)
	@$(testing) go test -p $(PACKAGES) -vet=off -count=1 -parallel=$(PARALLEL) -timeout=$(TESTTIMEOUT) $(TESTFLAGS) $(PKGS)

# Less garbage collection, for a few hundred megabytes: a tenth to a quarter of the processor time of
# compilers and tests.
vet test race etcd37 integration bench-test demos-test: export GOGC ?= 400

# Under the race detector concurrency alone takes seven to eight minutes.
race stall: TESTTIMEOUT = 30m

# vet sees there what it does not see without the detector: files with its build tag.
race: VETPKGS = $(shell grep -rl --include='*.go' '^//go:build race' . | xargs -r -n1 dirname | sort -u)

.PHONY: vet
vet: ## Vet the main module
	@$(patiently) go vet ./...

.PHONY: race
race: ## Run all tests in random order under the race detector; needs a C compiler
	@cc=$$(go env CC); command -v "$${cc%% *}" >/dev/null || { \
		echo "make race: the race detector needs a C compiler, and '$$cc' (go env CC) is not to be found. 'make test' needs only Go." >&2; exit 1; }
	@export CGO_ENABLED=1 GORACE="atexit_sleep_ms=100 $${GORACE:-}"; \
		$(patiently) go vet -race $(VETPKGS); \
		$(tool); \
		$(testing) go test -p $(PACKAGES) -race -vet=off -shuffle=on -parallel=$(RACING) -timeout=$(TESTTIMEOUT) $(TESTFLAGS) $(PKGS)

.PHONY: etcd37
etcd37: ## Vet and run all tests with etcd 3.7.3 in place of the floor in go.mod
	@$(if $(VETPKGS),$(patiently) go vet -modfile=$(ETCD37MOD) $(VETPKGS))
	@$(tool)
	@$(testing) go test -modfile=$(ETCD37MOD) -p $(PACKAGES) -vet=off -count=1 -parallel=$(PARALLEL) -timeout=$(TESTTIMEOUT) $(TESTFLAGS) $(PKGS)

.PHONY: etcd37-sync
etcd37-sync: ## Derive the go.mod of `make etcd37` from go.mod again
	@cp go.mod $(ETCD37MOD) && cp go.sum $(ETCD37MOD:.mod=.sum)
	@go mod edit $(foreach m,api client server,-require=go.etcd.io/etcd/$(m)/v3@$(ETCD37)) $(ETCD37MOD)
	@go mod tidy -modfile=$(ETCD37MOD)

.PHONY: golden-records
golden-records: ## Write what a full run stores into internal/proof/stored/testdata, once for a release: VERSION=0.1.0
	@go test ./internal/proof/stored -run TestRecord -record $(VERSION)

.PHONY: integration
integration: ## Compile and run the adapters against the real gocron and robfig/cron, and the middlewares in chi and echo, with connect-go, grpc-gateway and watermill, in a module of its own
	@$(patiently) go -C integration vet ./...
	@$(tool)
	@$(testing) go -C integration test -vet=off -count=1 -timeout=$(TESTTIMEOUT) $(TESTFLAGS) ./...

.PHONY: slowest
slowest: ## Run each test of some packages alone, and list the slowest by the wall clock and by processor time (PKGS="./schedlock" ARGS="-race -short -n 20")
	@$(patiently) go build -o bin/gate ./internal/proof/gate
	@bin/gate each $(ARGS) $(PKGS)

# axe-core examines the pages of the console. It is a script for browsers, and no part of a build.
AXE = 4.14.1
AXEFILE = $(CURDIR)/out/.axe/node_modules/axe-core/axe.min.js

.PHONY: browser
browser: ## Open the console in a headless Chromium, with its pages and actions, and examine the pages with axe-core; needs Chromium, and npm for axe-core
	@for name in chromium chromium-browser google-chrome headless-shell; do command -v $$name >/dev/null && found=1; done; [[ -n $${found:-} ]] || { \
		echo "make browser: there is no Chromium (Debian and Ubuntu: apt install chromium); nothing was checked." >&2; exit 1; }
	@command -v npm >/dev/null && npm install --silent --no-save --no-audit --no-fund --ignore-scripts --prefix out/.axe axe-core@$(AXE) || \
		echo "make browser: axe-core $(AXE) could not be installed by npm; the pages are not examined by it." >&2
	@file=$(AXEFILE); [[ -e $$file ]] || file=; CONSOLE_AXE=$$file $(MAKE) integration TESTFLAGS="-run=^TestConsole $(TESTFLAGS)"

.PHONY: outage
outage: ## Take a real etcd away for a minute from services under each outage policy, and print the handlers' peaks
	@go test -count=1 -timeout=$(TESTTIMEOUT) -parallel=6 -v -run='^TestAway$$' ./concurrency/limithttp -away=1m $(TESTFLAGS)

.PHONY: first-output
first-output: ## Time the first program of README from an empty folder to its output, with all modules and nothing compiled; fails above a minute
	@go test -count=1 -v -timeout=$(TESTTIMEOUT) -run='^TestFirstOutput$$' ./examples/quickstart/first -cold -within=1m $(TESTFLAGS)

.PHONY: stall
stall: ## Run all tests in processes that stand still for up to a second now and then, as on a busy machine; finds bounds that are too tight (ARGS="-longest 2s")
	@$(patiently) go build -o bin/stall ./internal/proof/procs/stall
	@go test -exec="$(CURDIR)/bin/stall $(ARGS)" -count=1 -parallel=$(PARALLEL) -timeout=$(TESTTIMEOUT) $(TESTFLAGS) $(PKGS)

.PHONY: verify
verify: ## Run what is longer than .ci/run allows, each part with a dated line in internal/proof/testing.md; hours (PARTS="stall chaos" SEEDS="1 2" MINUTES=3)
	@.ci/verify $(PARTS)

.PHONY: compat
compat: ## Run all tests against real servers of etcd 3.5, 3.6 and 3.7, one after the other; takes minutes
	@$(patiently) go vet ./compat $(PKGS)
	@go run ./compat -- -timeout=$(TESTTIMEOUT) $(TESTFLAGS) $(PKGS)

.PHONY: mutants
mutants: ## Take one rule after the other out of the product and show which checker or test notices (ARGS="-only m04"); up to an hour
	@$(patiently) go build -o bin/mutants ./internal/proof/mutants/cmd
	@bin/mutants $(ARGS)

.PHONY: alerts
alerts: ## Check the alert rules of docs/observability and run their unit tests; needs promtool (Debian: apt install prometheus)
	@command -v promtool >/dev/null || { \
		echo "make alerts: promtool is not installed (Debian and Ubuntu: apt install prometheus; otherwise prometheus.io/download); nothing was checked." >&2; exit 1; }
	@promtool check rules docs/observability/alerts.yaml docs/observability/fleet_alerts.yaml
	@promtool test rules docs/observability/*alerts_test.yaml docs/observability/*alerts_healthy_test.yaml
	@promtool check config --syntax-only docs/observability/compose/prometheus.yaml

.PHONY: alerts-day
alerts-day: ## Record five hours of a fleet that is healthy and busy, a second for each minute, repeat them for a day and run all alert rules on it, then on each fault; needs promtool; takes twelve minutes (SAMPLES=300)
	@command -v promtool >/dev/null || { \
		echo "make alerts-day: promtool is not installed (Debian and Ubuntu: apt install prometheus; otherwise prometheus.io/download); nothing was checked." >&2; exit 1; }
	@ALERTS_DAY=$(or $(SAMPLES),300) go test -count=1 -v -timeout 60m ./internal/proof/alertday

.PHONY: night
night: ## Cause five faults of a seed's choice in a fleet of 300 names, with console and Prometheus, to be found by docs alone; -check causes all and verifies alerts, first steps and remedies, a quarter of an hour (ARGS="-seed 7")
	@$(patiently) go build -o bin/etcdkit ./cmd/etcdkit
	@$(patiently) go build -o bin/night ./internal/proof/night
	@bin/night $(ARGS)

.PHONY: lint
lint: export GOTOOLCHAIN := local
lint: ## gofmt, go mod tidy, go vet for Linux, macOS and Windows, bash -n, staticcheck, and golangci-lint where installed
	@bad=$$(gofmt -l .); [[ -z $$bad ]] || { echo "not gofmt'ed (make fmt):" $$bad >&2; exit 1; }
	@for script in .ci/run .ci/verify .ci/patiently .ci/release-check .ci/licenses .ci/seeds docs/model/run; do bash -n $$script; done
	@for module in . bench demos integration; do go -C $$module mod tidy -diff; done
	@for os in linux darwin windows; do GOOS=$$os $(patiently) go vet $(PKGS); done
	@$(patiently) go run $(STATICCHECK) $(PKGS)
	@if command -v golangci-lint >/dev/null; then golangci-lint run $(PKGS); \
		else echo "lint: golangci-lint is not installed, its part is left out" >&2; fi

.PHONY: chaos
chaos: ## Semaphores, mutexes, elections, jobs and requests on three members while everything fails, judged by seven checkers (SEED=7 MINUTES=3, ARGS="-nemeses compaction")
	@$(patiently) go build -o bin/chaos ./internal/proof/chaos/cmd
	@bin/chaos $(if $(SEED),-seed $(SEED)) -for $(if $(MINUTES),$(MINUTES)m,1m) $(ARGS)

.PHONY: chaos-processes
chaos-processes: ## The same with real servers of three etcd lines and real clients, killed and stopped (SEED=7 MINUTES=2, ARGS="-line 3.5")
	@$(patiently) go build -o bin/chaos-processes ./internal/proof/chaos/processes/cmd
	@bin/chaos-processes $(if $(SEED),-seed $(SEED)) -for $(if $(MINUTES),$(MINUTES)m,1m) $(ARGS)

.PHONY: release-notes
release-notes: ## Write the section of a version of CHANGELOG.md into out/release-notes.md, the text of its release (VERSION=0.1.0)
	@mkdir -p out
	@awk -v version='$(VERSION)' '/^## /{ on = index($$0, "## [" version "]") == 1; next } on' CHANGELOG.md >out/release-notes.md
	@grep -q . out/release-notes.md || { echo "release-notes: CHANGELOG.md has no section [$(VERSION)]" >&2; exit 1; }

.PHONY: licenses
licenses: ## Write the licenses of all that is compiled into the commands into out/THIRD_PARTY_LICENSES.txt
	@mkdir -p out
	@.ci/licenses >out/THIRD_PARTY_LICENSES.txt

.PHONY: image-context
image-context: IMAGE ?= out/image
image-context: ARCH ?= $(shell go env GOARCH)
image-context: ## Write what the container image holds into out/image: docker build -f docs/deploy/Dockerfile out/image (ARCH=arm64)
	@mkdir -p '$(IMAGE)'
	@CGO_ENABLED=0 GOOS=linux GOARCH='$(ARCH)' $(patiently) go build -trimpath -o '$(IMAGE)/etcdkit' ./cmd/etcdkit
	@.ci/licenses >'$(IMAGE)/THIRD_PARTY_LICENSES.txt'
	@cp LICENSE '$(IMAGE)/LICENSE'

.PHONY: release-check
release-check: ## What a release passes beside .ci/run: API and stored data since the last tag, both versions in one fleet, what is shipped; half an hour (PARTS="api deploy" REF=v0.1.0)
	@PARTS='$(if $(filter command line environment,$(origin PARTS)),$(PARTS))' REF='$(REF)' .ci/release-check

# etcdctl and etcdutl are built in a module of their own, since their modules replace others.
etcdtools = { [[ -x bin/etcdctl && -x bin/etcdutl ]] || { dir=$$(mktemp -d); trap 'rm -rf "$$dir"' EXIT; cd "$$dir" && go mod init etcdtools && \
	go get go.etcd.io/etcd/etcdctl/v3@$(ETCDCTL) go.etcd.io/etcd/etcdutl/v3@$(ETCDCTL) && \
	go build -o "$(CURDIR)/bin/" go.etcd.io/etcd/etcdctl/v3 go.etcd.io/etcd/etcdutl/v3; } >/dev/null 2>&1; }

.PHONY: runbook
runbook: ## Execute docs/runbook.md on three real members with TLS and users, beside services at work; five minutes; needs bash and openssl; Linux only
	@$(patiently) go build -o bin/etcdkit ./cmd/etcdkit
	@$(patiently) go build -o bin/runbook ./internal/proof/runbook
	@for line in etcd36 etcd37; do go build -C compat/$$line -o "$(CURDIR)/bin/$$line" .; done
	@($(etcdtools)) || { echo "runbook: etcdctl and etcdutl cannot be built; nothing was executed" >&2; exit 1; }
	@bin/runbook $(ARGS)

.PHONY: referee
referee: ## Show whether commands under etcdkit run overlap when processes, etcd or connections fail, beside etcdctl lock (ARGS="-rounds 4"); ten minutes; Linux only
	@$(patiently) go build -o bin/etcdkit ./cmd/etcdkit
	@$(patiently) go build -o bin/referee ./internal/proof/referee
	@$(etcdtools) || echo "referee: etcdctl cannot be built, its rows are left out" >&2
	@bin/referee $$([[ -x bin/etcdctl ]] && echo -etcdctl bin/etcdctl) $(ARGS)

.PHONY: hung
hung: ## Measure what a fleet pays for a member of etcd that hangs, with and without the way past it (ARGS="-rows follower,login -users"); five minutes; slow disks need strace
	@$(patiently) go build -o bin/hung ./internal/proof/hung
	@bin/hung $(ARGS)

.PHONY: chaos-replay
chaos-replay: ## Judge a recorded history again (FILE=.../history.jsonl, OUT=folder for pictures)
	@[[ -n "$(FILE)" ]] || { echo "chaos-replay: FILE= names no history" >&2; exit 2; }
	@go run ./internal/proof/check/replay $(if $(OUT),-o $(OUT)) $(FILE)

.PHONY: model
model: ## Check the protocol's model exhaustively with spin, and with one rule taken out at a time (ARGS=NO_SWEEP); installs spin, takes minutes
	@docs/model/run $(ARGS)

.PHONY: fuzz
fuzz: ## Run every fuzz target for FUZZTIME
	@for dir in $$($(call holding,Fuzz)); do \
		for target in $$(sed -nE 's/^func (Fuzz[A-Z][A-Za-z0-9_]*)\(.*/\1/p' $$dir/*_test.go); do \
			echo "fuzz: $$dir $$target for $(FUZZTIME)" >&2; \
			go test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) $$dir; \
		done; \
	done

.PHONY: bench
bench: ## Measure etcdkit beside its peers in one table: etcd's Mutex, locks on Redis, x/sync; minutes (ROUNDS=3 BENCHTIME=1s ARGS="-json")
	@$(patiently) go -C bench build -o ../bin/bench .
	@bin/bench -out bin/bench.jsonl -rounds $(ROUNDS) -benchtime $(BENCHTIME) $(ARGS) table

.PHONY: bench-scale
bench-scale: ## The same over the number of waiting processes, limits, lengths of work, members and requests in flight; a quarter of an hour (ROUNDS=3 BENCHTIME=1s)
	@$(patiently) go -C bench build -o ../bin/bench .
	@bin/bench -out bin/bench-scale.jsonl -rounds $(ROUNDS) -benchtime $(BENCHTIME) $(ARGS) scale

# Status 3: everything was written, and some rows say why they have no figures.
.PHONY: bench-docs
bench-docs: ## Run both, and write their tables and plots into docs/benchmarks/README.md and docs/benchmarks.md (ROUNDS=3 SCALEROUNDS=1 BENCHTIME=1s NOTE="the machine was busy")
	@$(patiently) go -C bench build -o ../bin/bench .
	@bin/bench -out docs/benchmarks/table.jsonl -rounds $(ROUNDS) -benchtime $(BENCHTIME) -note '$(NOTE)' $(ARGS) table || [[ $$? == 3 ]]
	@bin/bench -out docs/benchmarks/scale.jsonl -rounds $(SCALEROUNDS) -benchtime $(BENCHTIME) -note '$(NOTE)' $(ARGS) scale || [[ $$? == 3 ]]
	@bin/bench docs docs/benchmarks docs/benchmarks/README.md docs/benchmarks.md

.PHONY: bench-page
bench-page: ## Write the tables and plots into docs/benchmarks/README.md and docs/benchmarks.md again, from docs/benchmarks/*.jsonl
	@$(patiently) go -C bench build -o ../bin/bench .
	@bin/bench docs docs/benchmarks docs/benchmarks/README.md docs/benchmarks.md

# Status 3, as above.
.PHONY: scaling
scaling: ## Measure what one cluster carries, with one member and three, and what each session and permit takes; writes docs/scaling.md; minutes (ROUNDS=3 BENCHTIME=1s NOTE="a laptop")
	@$(patiently) go -C bench build -o ../bin/bench .
	@bin/bench -out docs/benchmarks/scaling.jsonl -rounds $(ROUNDS) -benchtime $(BENCHTIME) -note '$(NOTE)' $(ARGS) scaling || [[ $$? == 3 ]]
	@bin/bench scaling-page docs/benchmarks/scaling.jsonl docs/scaling.md

.PHONY: soak
soak: ## Load a real etcd for an hour, and compare memory, keys, leases and watches of the first rest and the last; fails if one has grown by more than 2 % (MINUTES=60)
	@$(patiently) go build -o bin/soak ./internal/proof/soak/cmd
	@bin/soak -for $(or $(MINUTES),60)m $(ARGS)

.PHONY: cli-docs
cli-docs: ## Write docs/cli.md from the command, and bin/cli, a page for each verb with its help and the transcripts of its tests
	@go test ./cmd/etcdkit/internal/cli -run 'TestReference' -update

.PHONY: microbench
microbench: ## Run the Go benchmarks of all packages, one package at a time (BENCH=regexp BENCHTIME=1s)
	@dirs=$$($(call holding,Benchmark)); \
		if [[ -z $$dirs ]]; then echo "microbench: there are no benchmarks yet" >&2; exit; fi; \
		go test -run='^$$' -bench='$(BENCH)' -benchtime=$(BENCHTIME) -benchmem -timeout=30m $$dirs

.PHONY: bench-test
bench-test: ## Vet and test the benchmark itself, a module of its own
	@$(patiently) go -C bench vet ./...
	@$(tool)
	@$(testing) go -C bench test -vet=off -count=1 -timeout=$(TESTTIMEOUT) $(TESTFLAGS) ./...

.PHONY: demos-test
demos-test: ## Vet and test the larger demos, a module of their own; two minutes
	@$(patiently) go -C demos vet ./...
	@$(tool)
	@$(testing) go -C demos test -vet=off -count=1 -parallel=$(PARALLEL) -timeout=$(TESTTIMEOUT) $(TESTFLAGS) ./...

.PHONY: fmt
fmt: ## Format all Go files
	@gofmt -s -w .
