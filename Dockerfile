ARG BASE=debian:bookworm-slim

FROM ${BASE} AS build
WORKDIR /src
COPY deploy/setup.sh deploy/setup.sh
RUN bash -c 'source deploy/setup.sh && install_packages "${BUILD_PACKAGES[@]}"'
COPY . .
# `lowkey version` names this commit: the image is built without the repository.
ARG COMMIT=unknown
RUN bash -c 'source deploy/setup.sh \
    && quietly cmake -S . -B build -G Ninja -DCMAKE_BUILD_TYPE=Release -DLOWKEY_TESTS=OFF "-DLOWKEY_COMMIT=$COMMIT" \
    && build build lowkey \
    && quietly cmake --install build --prefix /install --strip \
    && runtime_packages /install/bin/lowkey >/packages'

FROM ${BASE}
COPY --from=build /src/deploy/setup.sh /packages /tmp/
RUN bash -c 'source /tmp/setup.sh && install_packages ca-certificates $(cat /tmp/packages)' \
    && rm -rf /tmp/setup.sh /tmp/packages /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*.log /var/log/apt \
    && useradd --system --uid 10001 --no-create-home --home-dir /nonexistent \
       --shell /usr/sbin/nologin lowkey
COPY --from=build /install /usr/local
USER 10001
EXPOSE 50051
HEALTHCHECK --interval=10s --timeout=3s --start-period=30s --retries=3 \
    CMD lowkey health --timeout 2s --server "127.0.0.1:${LOWKEY_PORT:-50051}"
STOPSIGNAL SIGTERM
ENTRYPOINT ["lowkey"]
# Refuses to start without credentials, and says how to give them or to do without.
CMD ["serve", "--host", "0.0.0.0"]
