# One image for scheduler, worker and dashboard: the command says which (docker-compose.yml).
# BASE is any image with Python 3.11 or newer, its venv module and a C library that PyPI has wheels for (not musl).
ARG BASE=python:3.12-slim
FROM ${BASE}

# For those who build behind a mirror: --build-arg PIP_INDEX_URL=…
ARG PIP_INDEX_URL
ENV PYTHONUNBUFFERED=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PATH=/opt/amqpjobs/bin:$PATH

WORKDIR /opt/amqpjobs/source
COPY requirements-image.lock ./
RUN python3 -m venv /opt/amqpjobs && pip install --require-hashes -r requirements-image.lock
COPY pyproject.toml README.md LICENSE ./
COPY templates templates
COPY amqpjobs amqpjobs
RUN pip install --no-deps --no-build-isolation .

# Views live here; they are disposable, but rebuilding them takes time. A number needs no entry in /etc/passwd.
RUN mkdir /var/lib/amqpjobs /app && chown 10001:10001 /var/lib/amqpjobs
ENV AMQPJOBS_STATE_DIR=/var/lib/amqpjobs HOME=/var/lib/amqpjobs
VOLUME /var/lib/amqpjobs
USER 10001:10001

# Where your modules are looked for: copy or mount them here.
WORKDIR /app
ENTRYPOINT ["amqpjobs"]
CMD ["--help"]
