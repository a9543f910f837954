# syntax=docker/dockerfile:1
# The proxy as an image: slim, without root, with a root file system that may be mounted read-only.
#   docker build -t domicile .            (with --sbom=true --provenance=true the image carries its bill of materials; make sbom writes one)
#   docker run --read-only --tmpfs /tmp -p 8080:8080 -v domicile-data:/data -v ./rules:/etc/domicile/rules:ro \
#     -e DOMICILE__COUNTRY=se -e DOMICILE__LISTEN__PROXY=0.0.0.0:8080 -e DOMICILE__LISTEN__INSECURE=proxy domicile
# The image says where its folders are and nothing else: which listeners are open to the container's network, and which of
# them may speak plain HTTP there, is the operator's to say. Without a word they are on the container's own loopback.

FROM python:3.11-slim AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /src
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends gcc libc6-dev && rm -rf /var/lib/apt/lists/*
RUN python -m venv --without-pip /opt/domicile
# The locks first: a change of the program alone does not fetch the libraries again. A build behind another package
# index hands its settings in as a secret, so that none of it stays in a layer: docker build --secret id=pip,src=pip.conf
COPY requirements/runtime.txt requirements/build.txt requirements/
RUN --mount=type=secret,id=pip,target=/etc/pip.conf,required=false \
    pip install --require-hashes -r requirements/build.txt \
 && pip --python /opt/domicile/bin/python install --require-hashes -r requirements/runtime.txt
COPY pyproject.toml README.md LICENSE ./
COPY proxy proxy
COPY rules/contacts.yaml rules/
RUN pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
 && pip --python /opt/domicile/bin/python install --no-deps --no-index /wheel/*.whl \
 && /opt/domicile/bin/python -m proxy.redactor.json.native \
 && /opt/domicile/bin/python -m compileall -q /opt/domicile/lib

FROM python:3.11-slim
# The user is a number, so that an orchestrator can see that it is not root.
RUN groupadd --system --gid 10001 domicile \
 && useradd --system --uid 10001 --gid 10001 --home-dir /data --no-create-home --shell /usr/sbin/nologin domicile \
 && install -d -o 10001 -g 10001 -m 0700 /data \
 && install -d /etc/domicile/rules
COPY --from=build /opt/domicile /opt/domicile
ENV PATH=/opt/domicile/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    DOMICILE__DATA=/data \
    DOMICILE__RULES=/etc/domicile/rules
LABEL org.opencontainers.image.title="Domicile" \
      org.opencontainers.image.description="A data-residency proxy with an embedded vault" \
      org.opencontainers.image.licenses="Apache-2.0"
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 CMD ["domicile", "health"]
ENTRYPOINT ["domicile"]
CMD ["serve"]
