# syntax=docker/dockerfile:1

# One image for amd64 and arm64: no step knows the architecture, so
# `docker buildx build --platform linux/amd64,linux/arm64 .` makes both. docs/deployment.md says how to run it.
#
# Both stages are Debian 12, so the binary finds the C library that it was linked with. A static binary on an empty
# image was rejected: musl's allocator cannot give memory back as `src/app/allocator.rs` asks glibc's to.
FROM rust:1.95-slim-bookworm AS build
WORKDIR /build
COPY Cargo.toml Cargo.lock ./
# Cargo refuses a manifest whose benchmarks are not there, even if they are not built.
COPY benches benches
COPY crates crates
COPY src src
COPY config/otel-collector-config.yaml config/
# As in `--build-arg FEATURES=object-store`.
ARG FEATURES=""
ARG TARGETPLATFORM
RUN --mount=type=cache,id=tributary-registry,target=/usr/local/cargo/registry \
    --mount=type=cache,id=tributary-target-${TARGETPLATFORM},target=/build/target,sharing=locked \
    cargo build --locked --profile dist --bin collector --features "${FEATURES}" \
    && install -D target/dist/collector /image/usr/local/bin/collector \
    && install -d /image/var/lib/tributary /image/var/cache/tributary

# No shell, no package manager; a C library, the public certificate authorities, and the user `nonroot`.
FROM gcr.io/distroless/cc-debian12:nonroot
ARG VERSION="0.1.0"
ARG REVISION=""
ARG CREATED=""
LABEL org.opencontainers.image.title="tributary" \
      org.opencontainers.image.description="A telemetry pipeline: OTLP traces, metrics, logs and profiles" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"
COPY --from=build /image/usr/local/bin/collector /usr/local/bin/collector
# Queues and files, and what may be lost. A volume that is mounted here for the first time takes over the owner.
COPY --from=build --chown=65532:65532 /image/var/lib/tributary /var/lib/tributary
COPY --from=build --chown=65532:65532 /image/var/cache/tributary /var/cache/tributary
COPY config/otel-collector-config.yaml /etc/tributary/config/collector.yaml
# By its number, so that Kubernetes can see that it is not root.
USER 65532:65532
# In a container localhost is the container's own: nobody would reach it.
ENV LISTEN=0.0.0.0
# Where the default configuration has its queue and its files: /var/lib/tributary.
ENV XDG_STATE_HOME=/var/lib
# OTLP over gRPC and HTTP, own metrics, health.
EXPOSE 4317 4318 8888 13133
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["/usr/local/bin/collector", "health", "--timeout=4"]
ENTRYPOINT ["/usr/local/bin/collector"]
CMD ["--config=/etc/tributary/config/collector.yaml"]
