# The thick image, with the same content as `make image` gives it (docs/images.md):
#
#   docker build -f image/thick.Dockerfile --build-arg VERSION=v5.0.0 --build-arg COMMIT=$(git rev-parse HEAD) --build-arg DATE=$(git log -1 --format=%cI) .
#
# BASE puts it on an image of your own; VARIANT=-debug builds the debug variant.
ARG BASE=scratch
ARG GO=golang:1.26

FROM --platform=$BUILDPLATFORM ${GO} AS build
ARG BASE
ARG TARGETPLATFORM
ARG VERSION
ARG COMMIT
ARG DATE
ARG MIRROR=
WORKDIR /src
COPY . .
RUN make image PLATFORMS=${TARGETPLATFORM} ROOTFS=/rootfs

FROM ${BASE}
ARG BASE
ARG VERSION
ARG COMMIT
ARG DATE
ARG VARIANT=
COPY --from=build /rootfs/thick${VARIANT}/ /
LABEL org.opencontainers.image.title="multus-thick"
LABEL org.opencontainers.image.source="https://github.com/multus-thick/multus"
LABEL org.opencontainers.image.version="${VERSION}"
LABEL org.opencontainers.image.revision="${COMMIT}"
LABEL org.opencontainers.image.created="${DATE}"
LABEL org.opencontainers.image.licenses="Apache-2.0"
LABEL org.opencontainers.image.base.name="${BASE}"
ENV PATH="${PATH:-/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin}:/usr/src/multus-cni/bin:/busybox"
WORKDIR /
USER 0:0
ENTRYPOINT ["/usr/src/multus-cni/bin/multus-daemon"]
