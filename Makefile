# Bare `make` lists the targets. The commands of each target can also be typed by hand.

GO       ?= go
BIN      := bin/outspan
PREFIX   ?= /usr/local
DESTDIR  ?=
FUZZTIME ?= 20s
IDLETIME ?= 10m
CHAOSTIME ?= 15m
SIM_SEEDS ?= 1000
SOAKTIME ?= 1h
# Further arguments of make bench, such as -dir /var/tmp -case placements.
BENCHARGS ?=
CASE     ?= .
BUBBLE_SEEDS ?= 10
# How many changes make mutants tries, or all. The same SEED above 0 chooses the same changes.
MUTANTS  ?= 400
SEED     ?= 0
# The version of this build: the tag or commit of the tree; "dev" outside a git checkout.
VERSION  ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS  := -s -w -X main.version=$(VERSION)
# With SKIPS=.ci/allowed-skips, a skipped test fails the run unless the list names it. CI does that.
SKIPS    ?=
# With AGAIN=3, up to three failed tests run a second time. Those that pass then are listed as flaky.
AGAIN    ?=
REPORT   := $(GO) run ./internal/testreport $(if $(SKIPS),-allow $(SKIPS)) $(if $(AGAIN),-again $(AGAIN))
LINT     := $(GO) tool -modfile=tools.mod golangci-lint
# Packages whose tests start whole clusters. They run after the others, and ./e2e runs alone, so that nothing else uses
# the processor while its tests measure.
CLUSTERS := ./e2e ./e2e/bubble ./e2e/linear ./internal/cli ./internal/daemon ./bench
# The tests that make systems runs. They call long, which skips them in make test.
LONG     := ^Test(Etcd|Nats|Redis|Policies|Preempt|Rebalance|Roll|Volume.*|Linear|PausedLeader|Compare|ServersAway|LeaderKills|OldSnapshot|OldSnapshotTrust|AgentUpgrade|SickMachine|Refill|Flood|ExpiredAgent|ClusterExpired|Clocks|RotateGossip|RotateCA|Adopt|AuditLogIsComplete|FairShares|Containers|ContainerDrains|ContainerFaults|ContainerBridge|ContainerdUpgrade|ExecPipes|Page.*)$$
# Packages with hardly a goroutine of their own, in which the race detector would find little, and sim, whose histories
# share no state. SEQUENTIAL are tests of other packages that take long and share nothing between goroutines.
SINGLE   := %/sim %/reconcile %/agent/bridge %/internal/cli/local %/jobfile %/rolefile %/examples %/dist %/internal/rules %/internal/testreport %/internal/fuzzall
SEQUENTIAL := ^Test(NoHollowScenario|ChunkedGivesWhatItTook|LargeManifestIsBounded|ArchiveManifestIsBounded|EveryStateIsReadBack|LastErrorsOfADrainAreBounded)$$
UNITS     = $(filter-out $(shell $(GO) list $(CLUSTERS)),$(shell $(GO) list ./...))

.DEFAULT_GOAL := help
.PHONY: help build demo test systems race lint fmt idle sim chaos plants mutants fuzz bench bench-full soak profile gobench cover screenshots docs install clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## build the static binary bin/outspan
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/outspan

demo: build ## build, then show a cluster at work on this machine (within a minute, cleans up after itself)
	$(BIN) demo

test: build ## run every test, whole clusters of processes included; as root also those that need namespaces (25 min on two cores)
	$(REPORT) -label unit -- -timeout 6m $(UNITS)
	$(REPORT) -label clusters -- -count=1 -short -timeout 12m ./e2e
	$(REPORT) -label scripts -- -count=1 -short -timeout 12m -p 2 $(filter-out ./e2e,$(CLUSTERS))
	@[ "$$(id -u)" = 0 ] || echo "not root: tests that need network namespaces, cgroups or other users skipped themselves, as listed above"

systems: build ## run the tests that take long: etcd, nats, redis and postgres under drains, moves of 1 GiB, reboots (as root, 20 min on two cores)
	$(REPORT) -label systems -- -count=1 -timeout 33m -parallel 2 -run '$(LONG)' ./e2e

race: ## run the tests under the race detector, but not those with hardly a goroutine (needs a C compiler)
	$(REPORT) -label race -- -race -timeout 25m -p 3 -skip '$(SEQUENTIAL)' $(filter-out $(SINGLE),$(UNITS))

lint: ## check format, vet and the linters of .golangci.yaml
	$(LINT) run ./...

fmt: ## format the Go files in place
	$(LINT) fmt ./...

idle: build ## watch a settled cluster for IDLETIME: it must write nothing and stay small
	OUTSPAN_IDLE=$(IDLETIME) $(REPORT) -label idle -- -count=1 -timeout 30m -run '^TestIdle$$' ./e2e/...

sim: ## run SIM_SEEDS fresh histories of a simulated cluster, BUBBLE_SEEDS of each kind with the real servers and agents, and fresh random cases
	OUTSPAN_SEEDS=$(SIM_SEEDS) $(GO) test -count=1 -v -timeout 60m -run '^TestMany$$' ./sim
	OUTSPAN_SIM=1 OUTSPAN_SIM_SEEDS=$(BUBBLE_SEEDS) $(GO) test -count=1 -v -timeout 60m ./e2e/bubble
	OUTSPAN_SIM=1 $(GO) test -count=1 -v -timeout 60m -run '^Test(Storm|Standstill)$$' ./cluster
	OUTSPAN_SIM=1 $(GO) test -count=1 -timeout 60m ./model ./fsm ./reconcile -rapid.checks=1000

chaos: ## break a cluster of real processes in every way for CHAOSTIME, as root; up to 4m with the same seed each time, longer with a fresh one
	OUTSPAN_CHAOS=$(CHAOSTIME) OUTSPAN_CHAOS_LOG=1 OUTSPAN_E2E_REQUIRED=1 $(GO) test -v -count=1 -timeout 4h -run '^TestChaos$$' ./e2e
	@echo 'chaos: 1 passed, 0 failed, 0 skipped'

plants: ## plant 33 known bugs, one at a time: the tests of whole clusters must catch each (PLANT=name for one)
	PLANT=$(PLANT) $(GO) test -tags plants -count=1 -timeout 12m -v ./internal/plant

mutants: ## change model, fsm and reconcile in MUTANTS places, one at a time: how many changes a test notices (about 15 min)
	$(GO) run ./internal/mutants -n $(MUTANTS) -seed $(SEED)

fuzz: ## run every fuzz target for FUZZTIME each, after its committed inputs
	$(GO) run ./internal/fuzzall -fuzztime $(FUZZTIME) -minimize 5s

bench: build ## measure a real cluster of 500 nodes and 10,000 instances (about 5 min; BENCHARGS=-list lists the cases)
	$(GO) run ./bench -bin $(BIN) -json bin/bench.json $(BENCHARGS)

bench-full: build ## measure a real cluster of 5,000 nodes and 100,000 instances
	$(GO) run ./bench -bin $(BIN) -full -json bin/bench-full.json $(BENCHARGS)

soak: build ## half load for SOAKTIME: what grows in the servers meanwhile
	$(GO) run ./bench -bin $(BIN) -soak $(SOAKTIME) -json bin/soak.json $(BENCHARGS)

profile: ## CPU and heap profiles of the servers during the cases that match CASE, in bin/profile
	@mkdir -p bin/profile
	CGO_ENABLED=0 $(GO) build -tags profile -o $(BIN)-profile ./cmd/outspan
	$(GO) run ./bench -bin $(BIN)-profile -case '$(CASE)' -profile $(CURDIR)/bin/profile $(BENCHARGS)
	@echo 'look with: go tool pprof -top $(BIN)-profile bin/profile/s1.cpu (or .heap)'

gobench: ## run the Go benchmarks
	$(GO) test -run '^$$' -bench . -benchmem ./...

cover: ## write bin/cover.html: which lines the tests without clusters reach
	@mkdir -p bin
	$(GO) test -coverpkg=./... -coverprofile=bin/cover.txt $(UNITS)
	$(GO) tool cover -html=bin/cover.txt -o bin/cover.html
	$(GO) tool cover -func=bin/cover.txt | tail -n 1

screenshots: ## write a picture of every screen of the web page in every look to bin/screenshots (needs Chromium, 6 min)
	@mkdir -p bin/screenshots
	OUTSPAN_PAGE_SHOTS=$(CURDIR)/bin/screenshots $(GO) test -count=1 -timeout 20m -run '^TestScreens$$' ./internal/ui

docs: ## write what is generated again (docs/cli, docs/job-file.md, docs/configuration.md, docs/metrics.md, the proofs in docs/requirements.md)
	$(GO) generate ./...

install: build ## install the binary and the unit files below DESTDIR and PREFIX
	install -d '$(DESTDIR)$(PREFIX)/bin' '$(DESTDIR)$(PREFIX)/lib/systemd/system'
	install -m 0755 $(BIN) '$(DESTDIR)$(PREFIX)/bin/outspan'
	for unit in outspan-server.service outspan-agent.service; do \
	  sed 's|/usr/local|$(PREFIX)|g' dist/$$unit >'$(DESTDIR)$(PREFIX)/lib/systemd/system/'$$unit; done

clean: ## remove what the targets above made
	rm -rf bin
