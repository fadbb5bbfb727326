# syntax=docker/dockerfile:1
#
# The proxy in a small image that runs as nobody in particular and keeps its data in one volume.
#
#   docker build -t callstack .
#   docker run --rm -v callstack-data:/data callstack key add laptop
#   docker run --rm -v callstack-data:/data -p 127.0.0.1:8787:8787 callstack serve --upstream https://api.example.com/v1
#
# Inside a container the proxy has to listen beyond loopback to be reached, and beyond loopback it refuses to start without
# client keys. The second line issues one: it prints the key, for the client, and keeps only its hash, in the volume. More
# settings go into a `proxy.yaml` mounted at /etc/callstack/proxy.yaml, or as STACK_* variables. A key for the provider is such
# a variable at run time, never a build argument: a layer keeps what it has seen. Reached under another name than localhost,
# the proxy must be told that name: STACK_ALLOWED_HOSTS=callstack.internal.

# The tag is for the reader: what is taken is what the digest says. `docker buildx imagetools inspect python:3.12-slim` tells
# the digest of today.
ARG PYTHON=3.12-slim@sha256:78387bc3881b8273120a12ebe6c1ab22b018ccc2c9adf565ae1ac9b536e184ea

FROM python:${PYTHON} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
WORKDIR /src
RUN python -m venv /build && python -m venv --without-pip /opt/callstack
COPY requirements.lock pyproject.toml README.md LICENSE proxy.yaml ./
# Every file is fetched once, here, and checked against the lock ...
RUN /build/bin/pip wheel --require-hashes --wheel-dir /wheels -r requirements.lock \
    && /build/bin/pip install --no-index --find-links /wheels hatchling
COPY proxy ./proxy
COPY callstack_proxy ./callstack_proxy
COPY llm_test_provider ./llm_test_provider
RUN /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels .
# ... and only what the package asks for goes on, from that folder alone: its builder stays behind.
RUN /build/bin/pip --python /opt/callstack/bin/python install --no-index --find-links /wheels "callstack-proxy[otel,postgres]"

FROM python:${PYTHON}
RUN useradd --system --uid 10001 --home-dir /data --shell /usr/sbin/nologin callstack \
    && install -d -o callstack -g callstack -m 0700 /data
COPY --from=build /opt/callstack /opt/callstack
ENV PATH=/opt/callstack/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    STACK_HOST=0.0.0.0 STACK_PORT=8787 STACK_DATA=/data STACK_TENANCY=key
USER 10001
WORKDIR /etc/callstack
VOLUME /data
EXPOSE 8787
# `localhost` is a name the proxy answers to without being told.
HEALTHCHECK --interval=30s --timeout=3s --start-period=10s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://localhost:8787/health', timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["callstack"]
CMD ["serve"]
