# Two images: `control-plane` (web, Celery worker, sweep, ingest) and `agent` (a training machine).
#   docker build --target control-plane -t trainyard .
#   docker build --target agent -t trainyard-agent .                     CPUs
#   docker build --target agent --build-arg KIND=gpu -t trainyard-agent .  CUDA

ARG BASE=python:3.11-slim-bookworm
FROM ${BASE} AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /srv/trainyard

FROM base AS control-plane
# Programs are fetched from git addresses.
RUN apt-get update -q && apt-get install -q -y --no-install-recommends git ca-certificates && rm -rf /var/lib/apt/lists/*
COPY requirements/control.txt requirements/
RUN pip install --require-hashes --no-deps -r requirements/control.txt
COPY manage.py ./
COPY dashboard dashboard
COPY orchestrator orchestrator
COPY worker_agent/__init__.py worker_agent/
COPY worker_agent/protocol worker_agent/protocol
COPY examples examples
ENV DJANGO_SETTINGS_MODULE=dashboard.config.settings TRAINYARD_STATIC_DIR=/srv/trainyard/static
RUN python manage.py static_files
RUN useradd --system --uid 10001 --create-home --home-dir /var/lib/trainyard --shell /usr/sbin/nologin trainyard
USER trainyard
ENV TRAINYARD_DATA_DIR=/var/lib/trainyard
VOLUME /var/lib/trainyard
EXPOSE 8000
CMD ["uvicorn", "dashboard.config.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--ws", "websockets-sansio", "--ws-per-message-deflate", "false", "--no-access-log", "--timeout-graceful-shutdown", "3"]

FROM base AS agent
ARG KIND=cpu
COPY requirements/agent-${KIND}.txt requirements/no-deps.txt requirements/
RUN pip install --require-hashes --no-deps -r requirements/agent-${KIND}.txt -r requirements/no-deps.txt
COPY worker_agent worker_agent
COPY trainyard trainyard
RUN useradd --system --uid 10002 --create-home --home-dir /var/lib/trainyard-agent --shell /usr/sbin/nologin trainyard
USER trainyard
VOLUME /var/lib/trainyard-agent
CMD ["python", "-m", "worker_agent", "run", "--data", "/var/lib/trainyard-agent"]
