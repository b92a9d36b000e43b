# The one image of all programs: docker build, podman build and buildah build make it alike.
# BASE is any image with Python 3.11 or newer as python3, its venv module and a glibc (the NVIDIA driver's libraries need one).
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /src
COPY requirements/runtime.txt requirements/build.txt requirements/
RUN python3 -m venv /opt/venv \
 && /opt/venv/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement requirements/runtime.txt \
 && python3 -m venv /opt/build \
 && /opt/build/bin/pip install --no-cache-dir --disable-pip-version-check --require-hashes --requirement requirements/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY src/ src/
RUN /opt/build/bin/pip wheel --no-deps --no-build-isolation --disable-pip-version-check --wheel-dir /wheels . \
 && /opt/venv/bin/pip install --no-deps --no-index --disable-pip-version-check /wheels/*.whl \
 && /opt/venv/bin/pip uninstall --yes --quiet pip

FROM ${BASE}
# Programs start on a read-only file system, and a base may come without Python's own modules compiled: half a second of each start.
RUN python3 -m compileall -q -x '/tests?/' "$(python3 -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"
COPY --from=build /opt/venv /opt/venv
ENV PATH=/opt/venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin PYTHONUNBUFFERED=1
ENTRYPOINT ["dra-driver"]
