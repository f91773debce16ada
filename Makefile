# Two commands matter to a newcomer: make demo, and make test. Both install what
# is missing first, and say so. `make` alone lists the rest.

GO          = test/go
STATICCHECK = honnef.co/go/tools/cmd/staticcheck@v0.8.2
VULNCHECK   = golang.org/x/vuln/cmd/govulncheck@v1.1.4
NFPM        = github.com/goreleaser/nfpm/v2/cmd/nfpm@v2.44.0

# The product binaries. They are static, and need no C compiler, but for the
# agent's child that speaks to PIV cards: PC/SC is a C library.
BINARIES = ./agent/holdfast-agent ./client/holdfast ./client/holdfast-broker ./client/holdfast-exec-plugin
PIV      = ./piv/holdfast-piv

# What --version shows. Only the commit decides it, so that two builds of one
# commit are equal.
VERSION := $(shell git describe --tags --always --dirty=-modified --abbrev=12 2>/dev/null || echo unknown)
LDFLAGS  = -s -w -X main.version=$(VERSION)

# A package's version starts with a digit, and grows.
DATE       := $(shell git log -1 --format=%ct 2>/dev/null || echo 0)
DEBVERSION := $(shell echo $(VERSION) | sed "s/^v\([0-9]\)/\1/;t end;s/^/0~$(DATE).g/;:end;s/-/+/g")

# How long each fuzz target runs under `make fuzz`.
FUZZTIME = 20s

# How often `make stress` runs the tests, and which: packages, or one test, as in
# STRESS_RUN='holdfast/piv TestCardFaults'.
N          = 10
PACKAGES   = $(SLOW) ./...
STRESS_RUN =

# Runs a command and leaves no process and no directory behind.
RUN = build/test/run

# What `make quick` leaves to `make test`: packages whose tests start real agents,
# brokers, cards or desktops, kill them or wait for them.
LONG = agent agent/store agent/prompt agent/logind piv piv/holdfast-piv tpm client/broker client/broker/proxy \
	client/broker/minted client/exchange/kubernetes/signin client/holdfast client/holdfast-exec-plugin \
	systemd test/faults test/pivcard test/script

# How the Go tests run. Many wait for a device or a timeout more than they compute, so
# more packages run at once than there are processors; the longest come first.
GOTEST = test -race -p $$((2 * $$(nproc)))
SLOW   = ./piv ./client/broker ./test/faults ./piv/holdfast-piv ./tpm ./systemd

# The working copy may belong to another user than the one who builds.
export GOFLAGS := $(GOFLAGS) -buildvcs=false

SHELL       = /bin/sh
.SHELLFLAGS = -euc
MAKEFLAGS  += --no-print-directory
.DEFAULT_GOAL = help
.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help version setup go run build test quick race soak stress lint vuln kubernetes kube fuzz bench demo demo-piv demo-kubernetes man deb repro clean

# The Kubernetes tests are a module of their own. They are built with the flags of
# the Kubernetes programs, so that what both compile is compiled once.
KUBE = cd test/kube && CGO_ENABLED=0 GOFLAGS="$(GOFLAGS) -trimpath" ../../$(GO)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 24

version:
	@echo $(VERSION)

setup: ## install the packages and the Go that tests and demo need
	@test/setup

go:
	@$(GO) version >/dev/null 2>&1 || test/setup go

build: go ## the binaries into build/bin; static, but for holdfast-piv
	@pkg-config --exists libpcsclite 2>/dev/null || test/setup build
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o build/bin/ $(BINARIES)
	CGO_ENABLED=1 $(GO) build -trimpath -ldflags "$(LDFLAGS)" -o build/bin/ $(PIV)

test: setup ## everything that must hold before a commit; .ci/run calls this
	@echo "== gofmt, go mod tidy, vet, staticcheck"
	@exec $(MAKE) lint
	@echo "== known vulnerabilities"
	@exec $(MAKE) vuln
	@echo "== tests, examples and fuzz seeds, with the race detector"
	@exec $(MAKE) race
	@echo "== two builds in different places give the same bytes"
	@exec $(MAKE) repro
	@echo "== the Debian package"
	@exec $(MAKE) deb
	@echo "== stock Kubernetes clients against a real control plane"
	@exec $(MAKE) kube
	@echo "== the demos"
	@exec $(MAKE) demo
	@exec $(MAKE) demo-piv
	@exec $(MAKE) demo-kubernetes

quick: run lint ## lint and the short tests, without the race detector: the inner loop
	$(RUN) $(GO) test $$($(GO) list ./... | grep -vxE "holdfast/($$(echo $(LONG) | tr ' ' '|'))")

race: run ## the Go tests, with the race detector
	@test/kube/build kubectl >/dev/null
	$(RUN) $(GO) $(GOTEST) -timeout 10m $(SLOW) ./...

soak: setup run ## the Go tests with every random sequence at its full length; half an hour
	@test/kube/build kubectl >/dev/null
	HOLDFAST_SOAK=1 $(RUN) $(GO) $(GOTEST) -count=1 -timeout 60m $(SLOW) ./...

stress: setup run kubernetes ## the tests N times (10) beside busy processes; each red test with its count
	@$(GO) build -o build/test/ ./test/stress
	@$(RUN) build/test/stress -n $(N) -packages "$(PACKAGES)" -run "$(STRESS_RUN)"

run: go
	@$(GO) build -o build/test/ ./test/run

lint: go ## gofmt, go mod tidy, vet and staticcheck
	@unformatted=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change:" $$unformatted; exit 1; fi
	$(GO) mod tidy -diff
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	$(KUBE) mod tidy -diff
	$(KUBE) vet ./...
	$(KUBE) run $(STATICCHECK) ./...

vuln: go ## a scan for known vulnerabilities, where the database is reachable
	@test/vuln $(VULNCHECK)

kubernetes: go ## kubectl, kube-apiserver and their like, into the user's cache; minutes, the first time
	@test/kube/build

kube: run kubernetes ## stock Kubernetes clients against a real control plane
	@test/kube/clients/install >/dev/null
	$(RUN) sh -c '$(KUBE) test -parallel 6 -timeout 10m ./...'

fuzz: run ## each fuzz target for FUZZTIME (20s)
	@$(RUN) test/fuzz $(FUZZTIME)

bench: setup run kubernetes ## the figures, one `name value unit` per line; JSON to $BENCH_OUT
	@$(RUN) $(GO) run ./test/bench
	@$(RUN) sh -c '$(KUBE) run ./bench -append'

demo: setup run build ## a mutual-TLS login with a key that cannot leave its TPM
	@$(RUN) test/demo

demo-piv: setup run build ## the same with a key on a YubiKey; here a card of software behind the real pcscd
	@$(RUN) test/demo-piv

demo-kubernetes: setup run build kubernetes ## kubectl with a key that cannot leave its TPM
	@$(RUN) test/demo-kubernetes

man: build ## the manual pages, compressed, and shell completions, into build/
	@mkdir -p build/man build/completions
	for page in packaging/man/*.[1-9]; do gzip -9nc "$$page" >"build/man/$${page##*/}.gz"; done
	for shell in bash zsh fish; do build/bin/holdfast completion $$shell >build/completions/$$shell; done

deb: build man ## a Debian package, into build/
	@rm -f build/*.deb
	VERSION=$(DEBVERSION) ARCH=$$($(GO) env GOARCH) SOURCE_DATE_EPOCH=$(DATE) \
		$(GO) run $(NFPM) package --config packaging/nfpm.yaml --packager deb --target build/
	dpkg-deb --contents build/holdfast_$(DEBVERSION)_*.deb

repro: run ## build twice, in different directories, and compare
	@$(RUN) test/repro $(BINARIES) $(PIV)

clean: ## remove build/
	rm -rf build
