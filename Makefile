# Everything is built and tested with the toolchain that go.mod names; go fetches it.
export GOTOOLCHAIN ?= auto
VERSION := $(shell git describe --tags --always --dirty 2>/dev/null || echo devel)
LDFLAGS := -X main.version=$(VERSION)

# The toolchain's own gofmt: one from PATH may be of another version.
GOFMT = "$$(go env GOROOT)/bin/gofmt"

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# The sidecar needs no C; only the race detector does.
.PHONY: build
build: ## build the sidecar: bin/throttler
	CGO_ENABLED=0 go build -trimpath -ldflags '$(LDFLAGS)' -o bin/throttler ./cmd/throttler

.PHONY: run
run: build ## show the main job: signed payment calls, straight and through the sidecar
	go run ./cmd/demo -throttler bin/throttler

.PHONY: run-fleet
run-fleet: build postgres-tools ## show three replicas over one PostgreSQL, of which one is killed, some 20 seconds
	go run ./cmd/demo -throttler bin/throttler -fleet

# The race detector watches all code but SQLite, which is C made into Go: a connection has one
# goroutine at a time, and our side of it is watched. With SQLite the store's tests take twice the time.
# With -short a test plays a sixth of its random loads, some a smaller backlog, and some a store only
# sealed or only in the clear: under the race detector that shows the same races. make again plays all
# of them, and make seeds many more.
RACE = -race '-gcflags=modernc.org/...=-race=false -d=checkptr=0'

# The longest tests come first, four packages and six tests of each at a time: many wait for processes and windows, not for a
# processor. make lint runs vet.
LONGEST = ./cmd/throttler ./pkg/store ./pkg/postgres ./pkg/scheduler

# Tests start PostgreSQL themselves; its programs are those of Debian's package, or of PG_BIN.
.PHONY: postgres-tools
postgres-tools:
	@test -n "$$PG_BIN" || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || command -v initdb >/dev/null || if [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends postgresql; \
	else echo "PostgreSQL is not installed (apt install postgresql), and the tests need it" >&2; exit 1; fi

.PHONY: test
test: postgres-tools ## run all tests with the race detector, and the SDKs in Go
	go test $(RACE) -vet=off -short -timeout 20m -p 4 -parallel 6 $(LONGEST) ./...
	$(MAKE) --no-print-directory sdk
	@echo "NOT RUN: the SDKs in JavaScript and Python, which need node, npm and python3-stripe: make sdk-scripts; the document of the admin API: make api-test api-lint"

.PHONY: sdk
sdk: ## run payment SDKs in Go through the real sidecar (a module of their own)
	cd test/sdk && go vet ./... && go test -race ./...

.PHONY: sdk-scripts
sdk-scripts: ## the same with alipay-sdk and stripe of npm, which need node 20, and Debian's python3-stripe
	@command -v npm >/dev/null || { echo "sdk-scripts: node 20 and npm are not installed (nodejs.org); nothing was tested" >&2; exit 1; }
	@/usr/bin/python3 -c 'import stripe' || { echo "sdk-scripts: stripe for Python is not installed (apt install python3-stripe); nothing was tested" >&2; exit 1; }
	cd test/sdk/node && npm ci --no-audit --no-fund
	cd test/sdk && go test -count=1 -tags scripts -run 'TestNode|TestPython' ./...

.PHONY: api
api: ## write api/openapi.yaml from the table of operations, and api/client from it
	go test -count=1 ./internal/openapi -update
	cd api/client && go tool -modfile=../../tools/go.mod oapi-codegen -config oapi-codegen.yaml openapi30.yaml

.PHONY: api-test
api-test: postgres-tools ## validate requests and answers of the real binary by api/openapi.yaml, and look for breaking changes (a module of its own)
	cd test/api && go vet ./... && go test -count=1 ./...

.PHONY: api-landed
api-landed: ## take api/openapi.yaml for the document that later ones must not break
	cp api/openapi.yaml test/api/landed.yaml

.PHONY: api-lint
api-lint: ## lint api/openapi.yaml, and compile types generated from it in TypeScript; needs node 20
	@command -v npm >/dev/null || { echo "api-lint: node 20 and npm are not installed (nodejs.org); nothing was checked" >&2; exit 1; }
	cd test/api/npm && npm ci --no-audit --no-fund --ignore-scripts && npm run lint

.PHONY: browser-tools
browser-tools:
	@command -v chromium >/dev/null && fc-list | grep -q 'Noto Sans CJK' || if [ "$$(id -u)" = 0 ]; then \
		apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium fonts-noto-cjk fontconfig; \
	else echo "browser: chromium and fonts-noto-cjk of Debian are not installed (apt install chromium fonts-noto-cjk); nothing was tested" >&2; exit 1; fi
	@command -v npm >/dev/null || { echo "browser: node 20 and npm are not installed (nodejs.org); nothing was tested" >&2; exit 1; }
	cd test/browser/npm && npm ci --no-audit --no-fund --ignore-scripts

.PHONY: browser
browser: browser-tools postgres-tools ## use the dashboard in chromium, by mouse, by keyboard and without scripts, over SQLite and PostgreSQL, some 4 minutes (a module of its own; needs node 20, and Debian's chromium and fonts-noto-cjk)
	cd test/browser && go vet ./... && go test -count=1 -timeout 10m -v ./...

.PHONY: pictures
pictures: browser-tools ## write the pictures of the dashboard, docs/pictures, anew
	mkdir -p docs/pictures
	cd test/browser && go test -count=1 -timeout 5m -run TestPictures -v ./... -pictures ../../docs/pictures

.PHONY: security
security: ## attack the real sidecar: sockets, hostile upstreams and files (a module of their own)
	go test ./cmd/throttler -run TestIdleSockets -crowds -timeout 15m
	cd test/security && go vet . && go test -count=1 -timeout 15m

.PHONY: again
again: COUNT ?= 2
again: postgres-tools ## run the Go tests COUNT (2) times more, whole, without the race detector: a test that fails once in many runs is a bug
	go test -vet=off -count=$(COUNT) -timeout 20m -parallel 6 $(LONGEST) ./... # two at a time: what the sidecar holds in memory is measured, and grows while the processors are taken

.PHONY: seeds
seeds: SEEDS ?= 10000
seeds: ## compare planner and scheduler with one that looks at everything, over SEEDS (10,000) new random loads each
	go test ./pkg/planner -run AgainstOracle -seeds $(SEEDS) -seed $$(date +%s) -timeout 15m
	go test ./pkg/scheduler -run OracleWould -seeds $(SEEDS) -seed $$(date +%s) -timeout 15m

.PHONY: sim
sim: SEEDS ?= 10000
sim: FLEETSEEDS ?= 10000
sim: postgres-tools ## simulate scheduler, store and platform through several lives SEEDS (10,000) times, and a fleet FLEETSEEDS (10,000) times, by new seeds
	go test ./pkg/store -run TestSimulation -sim.seeds $(SEEDS) -sim.seed $$(date +%s) -timeout 15m
	go test ./pkg/postgres -run TestSimulation -sim.seeds $(FLEETSEEDS) -sim.seed $$(date +%s) -timeout 60m

.PHONY: money
money: MONEY ?= 4000
money: ## play MONEY (4000) new random schedules of payments against ledgers of the presets' platforms
	go test ./internal/ledger -run TestMoney -fresh -schedules $(MONEY) -timeout 60m

.PHONY: faults
faults: RACESEEDS ?= 500
faults: ## cut the power, fail syncs, fill the disk, damage the file: three times more than make test
	go test ./pkg/store -run 'PowerCut|FailedSync|Scheduler|DiskFull|Damage' -faults 3 -v -timeout 15m
	go test $(RACE) ./pkg/store -run TestSimulation -sim.seeds $(RACESEEDS) -timeout 15m

.PHONY: kill
kill: KILLS ?= 200
kill: ## kill -9 the sidecar KILLS (200) times under load
	go test ./cmd/throttler -run TestKill -kills $(KILLS) -v -timeout 45m

.PHONY: fleet
fleet: ROUNDS ?= 20
fleet: TAKEOVERS ?= 3
fleet: postgres-tools ## kill, stop, freeze and part replicas and PostgreSQL ROUNDS (20) times under load, time TAKEOVERS (3) kills and stops, let standbys follow, and cut connections at each 7th byte
	go test ./cmd/throttler -run TestReplicas -fleet.rounds $(ROUNDS) -v -timeout 90m
	go test ./cmd/throttler -run 'TestTakeOver|TestFailOver' -fleet.takeovers $(TAKEOVERS) -v -timeout 60m
	go test ./pkg/postgres -run TestStandby -standby.rounds $(TAKEOVERS) -timeout 60m
	go test ./pkg/postgres -run 'TestCut$$' -cut.step 7 -v -timeout 15m

.PHONY: pairs
pairs: PAIRS ?= 500
pairs: postgres-tools ## send PAIRS (500) pairs of requests of each kind under one key in the same moment: executed once, and the second answer comes with the first
	go test ./cmd/throttler -run TestPairs -pairs $(PAIRS) -v -timeout 60m

.PHONY: chaos
chaos: ## step the clock, harm the file, ask at the start, some 2 minutes: what the upstream then counts
	go test ./cmd/throttler -run 'TestChaos|TestCopy' -chaos -parallel 16 -v -timeout 15m

.PHONY: planted
planted: ## plant bugs, one at a time: the tests must see each; ARGS='-n 60'
	go run ./internal/planted $(ARGS)

.PHONY: mutants
mutants: ## change the code in small ways, one at a time: the tests must see each; ARGS='-n 80'
	go run ./internal/mutants $(ARGS)

.PHONY: lint
lint: ## check formatting, vet and staticcheck
	@test -z "$$($(GOFMT) -l .)" || { $(GOFMT) -l .; echo "gofmt would change these files: run make fmt"; exit 1; }
	go vet ./...
	go tool -modfile=tools/go.mod staticcheck ./...
	go mod tidy -diff
	cd test/sdk && go vet -tags scripts ./...
	cd test/api && go vet ./...
	cd test/browser && go vet ./...
	for module in bench/*; do (cd $$module && go vet ./...) || exit 1; done
	for module in bench/* test/* tools; do (cd $$module && go mod tidy -diff) || exit 1; done

.PHONY: fmt
fmt: ## format the code
	$(GOFMT) -w .

.PHONY: fuzz
fuzz: FUZZTIME ?= 1m
fuzz: ## fuzz the ledger, the wheel, the planner, requests, answers, their codings and waits, configurations and files of the store for FUZZTIME (1m) each
	go test ./pkg/quota -run '^$$' -fuzz FuzzLedger -fuzztime $(FUZZTIME)
	go test ./pkg/wheel -run '^$$' -fuzz Fuzz -fuzztime $(FUZZTIME)
	go test ./pkg/planner -run '^$$' -fuzz FuzzPlanner -fuzztime $(FUZZTIME) -fuzzminimizetime 2s
	go test ./pkg/upstream -run '^$$' -fuzz FuzzReaders -fuzztime $(FUZZTIME) -fuzzminimizetime 2s
	go test ./pkg/upstream -run '^$$' -fuzz FuzzCodings -fuzztime $(FUZZTIME) -fuzzminimizetime 2s
	go test ./pkg/retryafter -run '^$$' -fuzz FuzzRetryAfter -fuzztime $(FUZZTIME) -fuzzminimizetime 2s
	go test ./internal/http1 -run '^$$' -fuzz FuzzAnswersAsNetHTTP -fuzztime $(FUZZTIME) -fuzzminimizetime 2s
	go test ./cmd/throttler -run '^$$' -fuzz FuzzConfig -fuzztime $(FUZZTIME) -fuzzminimizetime 1x
	go test ./pkg/store -run '^$$' -fuzz FuzzStoreFile -fuzztime $(FUZZTIME) -fuzzminimizetime 1x

.PHONY: full
full: ## everything that .ci/run runs a share of, whole: some three hours
	$(MAKE) --no-print-directory seeds sim faults
	$(MAKE) --no-print-directory fuzz FUZZTIME=10m
	$(MAKE) --no-print-directory planted mutants
	go run ./internal/planted -fuzz 2m
	$(MAKE) --no-print-directory money MONEY=100000
	go test ./internal/ledger -run TestWrongRules -rules 400 -timeout 60m
	$(MAKE) --no-print-directory kill KILLS=1000
	$(MAKE) --no-print-directory fleet ROUNDS=500 TAKEOVERS=100
	go test ./cmd/throttler -run TestReplicas -fleet.rounds 10 -fleet.defaults -v -timeout 60m
	go test ./pkg/postgres -run 'TestCut$$' -cut.step 1 -v -timeout 30m
	go test ./pkg/store -run 'TestOperators$$' -operators.seeds 10000 -timeout 30m
	go test ./pkg/store -run TestMillion -million 1000000 -v -timeout 30m
	go test ./cmd/throttler -run TestFindInAStore -find.calls 1000000 -find.probes 300 -v -timeout 40m
	go test ./pkg/store -run TestEndedThroughKills -ended.calls 10000 -ended.kills 20 -v -timeout 15m
	$(MAKE) --no-print-directory pairs PAIRS=10000
	cd test/security && go test -count=1 -run TestHonestClients -v -speed

.PHONY: bench
bench: ## run the benchmarks
	go test -run '^$$' -bench . -benchmem ./pkg/...

.PHONY: bench-quota
bench-quota: ## measure a permit beside golang.org/x/time/rate, and the memory of a million waiting calls
	go test -run '^$$' -bench 'Permit' -count 5 ./pkg/quota
	go test -run '^$$' -bench 'Waiting' -benchtime 1x ./pkg/scheduler

.PHONY: bench-wheel
bench-wheel: ## measure the timing wheel beside other timers, some 9 minutes: docs/bench-wheel.md
	mkdir -p docs
	cd bench/wheel && go run . -o ../../docs/bench-wheel.md

.PHONY: bench-limits
bench-limits: build ## measure limiters as the receiver sees them, ours beside its peers; ARGS='-workload 200ms -runs 1'
	cd bench/limits && go vet ./... && go test ./... && go build -o ../../bin/bench-limits .
	bin/bench-limits -throttler bin/throttler $(ARGS)

.PHONY: bench-hop
bench-hop: build ## measure the sidecar's hop beside nginx, HAProxy and proxies in Go, some 20 minutes; ARGS='-rounds 1 -only Throttler'
	cd bench/hop && go vet . && go test . && go build -o ../../bin/bench-hop .
	bin/bench-hop -throttler bin/throttler $(ARGS)

.PHONY: bench-peers
bench-peers: ## install the peers of bench-hop, nginx and haproxy, by apt
	$$(test "$$(id -u)" = 0 || echo sudo) apt-get install -y --no-install-recommends nginx haproxy

.PHONY: bench-meters
bench-meters: build bench-meters-peers ## measure calls at real rate limiters with a limit that says too little, some 3 minutes; ARGS='-only nginx'
	cd bench/meters && go vet . && go test . && go build -o ../../bin/bench-meters .
	bin/bench-meters -throttler bin/throttler $(ARGS)

.PHONY: bench-meters-peers
bench-meters-peers: # nginx, haproxy and redis-server of Debian, and express-rate-limit of npm
	@command -v redis-server >/dev/null && test -x /usr/sbin/nginx -a -x /usr/sbin/haproxy || \
		$$(test "$$(id -u)" = 0 || echo sudo) apt-get install -y --no-install-recommends nginx haproxy redis-server
	cd bench/meters/express && npm ci --no-audit --no-fund --ignore-scripts

.PHONY: bench-plan
bench-plan: ## preview a million calls under three limits with 1,000 keys and 20 flows at 99% load
	go test ./internal/preview -run '^$$' -bench Run -benchtime 1000000x

.PHONY: bench-store
bench-store: ## measure the store beside a bare SQLite writer, asynq and River, some 3 minutes: docs/bench-store.md
	cd bench/store && go vet . && go run . -o ../../docs/bench-store.md $(ARGS)

.PHONY: bench-fleet
bench-fleet: postgres-tools ## measure calls in PostgreSQL beside River on the same server, some 4 minutes: docs/bench-fleet.md
	cd bench/store && go vet . && go run . -fleet -jobs 5000 -o ../../docs/bench-fleet.md $(ARGS)

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
