# syntax=docker/dockerfile:1
#
# The proxy in a small image that runs as nobody in particular and keeps its data in one volume.
#
#   docker build -t callstack .
#   docker run --rm -v callstack-data:/data -v "$PWD/proxy.yaml:/etc/callstack/proxy.yaml:ro" -p 127.0.0.1:8000:8000 callstack
#
# Inside a container the proxy must listen beyond loopback to be reached, and beyond loopback it refuses to start without
# client keys. Issue one on any machine with `callstack key add NAME`: it prints the key once, for the client, and the hash that
# belongs in `proxy.yaml`. Mount that file as above. Upstream keys come in the environment at run time (see `proxy.yaml`),
# never as a build argument: a layer keeps what it has seen.

ARG PYTHON=3.12-slim

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /build && python -m venv --without-pip /opt/callstack
COPY requirements.lock pyproject.toml README.md LICENSE proxy.yaml ./
# Every file is fetched once, here, and checked against the lock ...
RUN /build/bin/pip wheel --require-hashes --wheel-dir /wheels -r requirements.lock \
    && /build/bin/pip install --no-index --find-links /wheels hatchling
COPY proxy ./proxy
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .
# ... and only what the package asks for goes on, from that folder alone: the tools of the tests stay behind.
RUN /build/bin/pip --python /opt/callstack/bin/python install --no-index --find-links /wheels callstack-proxy

FROM python:${PYTHON}
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin callstack \
    && install -d -o callstack -g callstack -m 0700 /data
COPY --from=build /opt/callstack /opt/callstack
ENV PATH=/opt/callstack/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
USER 10001
WORKDIR /etc/callstack
VOLUME /data
EXPOSE 8000
# `localhost` is a host name the proxy knows as its own; --interval keeps the probe out of the way of the metrics.
HEALTHCHECK --interval=30s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://localhost:8000/health', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["callstack"]
CMD ["serve", "--host", "0.0.0.0", "--port", "8000", "--data", "/data"]
