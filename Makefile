# `sudo make demo` and `sudo make test` are the two commands to begin with; `make
# help` lists the others. Each installs what it needs, as root.

# Under sudo PATH may lack Go; the usual place is looked at too.
GO ?= $(or $(shell command -v go 2>/dev/null),$(wildcard /usr/local/go/bin/go),$(error Go 1.26 or later is needed, and was not found))
export CGO_ENABLED = 0
export GOFLAGS = -buildvcs=false

BIN := bin
CNI := $(BIN)/cni
PLUGINS := main/bridge main/host-device main/ipvlan main/loopback main/macvlan main/ptp main/tap main/vlan \
	ipam/dhcp ipam/host-local ipam/static \
	meta/bandwidth meta/firewall meta/portmap meta/sbr meta/tuning meta/vrf

# An unpacked archive has no git, or lies in another project's: then the version is that
# of the sources, and the date that of their files.
GIT = $(shell test "$$(git rev-parse --show-toplevel 2>/dev/null)" = "$$(pwd -P)" && echo git || echo false)
VERSION ?= $(shell $(GIT) describe --tags --always 2>/dev/null || echo v5.0.0-dev)
COMMIT ?= $(shell $(GIT) rev-parse --verify HEAD 2>/dev/null || echo unknown)
TREE ?= $(shell changes="$$($(GIT) status --porcelain 2>/dev/null)" || { echo unknown; exit; }; test -z "$$changes" && echo clean || echo dirty)
DATE ?= $(if $(SOURCE_DATE_EPOCH),$(shell date -u -d @$(SOURCE_DATE_EPOCH) +%FT%TZ),$(shell $(GIT) log -1 --format=%cI 2>/dev/null || date -u -r Makefile +%FT%TZ))
PKG := github.com/multus-thick/multus/internal/version
LDFLAGS := -s -w -X $(PKG).version=$(VERSION) -X $(PKG).commit=$(COMMIT) -X $(PKG).gitTreeState=$(TREE) -X $(PKG).date=$(DATE)

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## Build the static binaries into bin/.
	$(GO) build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN)/ ./cmd/...

.PHONY: plugins
plugins: ## Build the reference CNI plugins into bin/cni.
	cd tools/cni && $(GO) build -trimpath -ldflags '-s -w' -o ../../$(CNI)/ $(addprefix github.com/containernetworking/plugins/plugins/,$(PLUGINS))
	@cp -f $(BIN)/passthru $(CNI)/passthru

.PHONY: demo
demo: root build plugins ## Attach a pod to three networks, with no cluster, and show it.
	$(BIN)/multusctl try examples/three-networks

.PHONY: test
test: root gcc build plugins ## Run all tests: unit, fuzz seeds, the node suite in network namespaces.
	CGO_ENABLED=1 $(GO) test -race -shuffle=on $(TESTFLAGS) ./...
	cd test/deploy && $(GO) test -count=1 $(TESTFLAGS) ./... # what it reads lies outside of its module
	cd test/monitoring && $(GO) test -count=1 $(TESTFLAGS) ./... # the same
	cd tools/image && $(GO) test -count=1 $(TESTFLAGS) ./... # the same
	./test/no-skips.sh

.PHONY: bench
bench: root build plugins ## Print the budgets' figures, as ratios against the delegates run directly.
	$(GO) run ./test/bench

.PHONY: lint
lint: ## Run the linters.
	cd tools/lint && $(GO) build -o ../../$(BIN)/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	for module in . tools/image test/deploy test/monitoring; do (cd $$module && $(CURDIR)/$(BIN)/golangci-lint run -c $(CURDIR)/.golangci.yml ./...) || exit; done

.PHONY: fuzz
fuzz: ## Run each fuzz test for FUZZTIME (a duration, or a count: default 20000x).
	GO='$(GO)' FUZZTIME='$(or $(FUZZTIME),20000x)' ./test/fuzz.sh

# docs/images.md tells what each of these does.
IMAGE ?= localhost/multus-cni
PLATFORMS ?=
BASE ?= scratch
MIRROR ?=
ROOTFS ?=
OUT ?= $(BIN)/image

.PHONY: image
image: ## Build the container images into bin/image; PLATFORMS=all for every platform.
	cd tools/image && $(GO) build -trimpath -o ../../$(BIN)/mkimage .
	@$(BIN)/mkimage -out '$(OUT)' -go '$(GO)' -ldflags '$(LDFLAGS)' -name '$(IMAGE)' -version '$(VERSION)' -commit '$(COMMIT)' \
		-date '$(DATE)' -platforms '$(PLATFORMS)' -base '$(BASE)' -mirror '$(MIRROR)' -rootfs '$(ROOTFS)'

# The version that deploy/ names is what the suite installs, on a cluster of its own.
DEPLOYED = $(shell sed -n 's/^ *newTag: \(.*\)-thick$$/\1/p' deploy/thick/kustomization.yaml)
E2E_STATE = $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/multus-cluster/e2e
E2E = MULTUS_CLUSTER_STATE=$(E2E_STATE) E2E_LOGS=$(CURDIR)/$(BIN)/e2e-logs $(GO) test -tags e2e -count=1 -timeout 60m -v $(E2EFLAGS) ./test/e2e

.PHONY: cluster
cluster: root ## Build what the cluster suite runs: Kubernetes, containerd, runc. Cached; 15 minutes the first time.
	$(GO) run ./test/cluster build
	$(GO) run ./test/cluster build --runtime debian

.PHONY: e2e
e2e: root cluster ## Run the cluster suite: a real Kubernetes of two nodes on this machine.
	$(MAKE) image VERSION=$(DEPLOYED)
	MULTUS_CLUSTER_STATE=$(E2E_STATE) $(GO) run ./test/cluster down # what a killed run has left
	$(E2E)
	MULTUS_CLUSTER_RUNTIME=debian $(E2E) -run 'TestI3_(Networks|BadRequests|RuntimeKilledInABurst)$$'

.PHONY: clean
clean: ## Remove bin/.
	rm -rf $(BIN)

.PHONY: root
root:
	@test "$$(id -u)" = 0 || { echo "network namespaces need root: sudo make $(MAKECMDGOALS)" >&2; exit 1; }

# The race detector is C.
.PHONY: gcc
gcc:
	@command -v gcc >/dev/null || { apt-get update -qq && apt-get install -y -qq gcc libc6-dev; }
