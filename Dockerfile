# The release build with its console; one process, one volume.
FROM rust:1.95-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends nodejs npm && rm -rf /var/lib/apt/lists/*
WORKDIR /forebay
COPY . .
RUN cargo xtask build --release

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --create-home --home-dir /var/lib/forebay forebay
COPY --from=build /forebay/target/release/forebay /usr/local/bin/forebay
COPY --from=build /forebay/target/site /usr/share/forebay/site
USER forebay
ENV FOREBAY_ADDR=0.0.0.0:8080 FOREBAY_DATA_DIR=/var/lib/forebay FOREBAY_SITE_ROOT=/usr/share/forebay/site
VOLUME /var/lib/forebay
EXPOSE 8080
CMD ["forebay", "serve"]
