# The command rnc, for CPUs: docker build --tag rnc .
# docs/install.md has the other builds. Nothing but the package index is asked for anything.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m pip wheel --no-cache-dir --no-deps --wheel-dir /wheel ./

FROM ${BASE}
# The address of an index with another build of torch; by default the torch of the package index.
ARG TORCH_INDEX=""
# Extras with their brackets, such as [export,search] or [all].
ARG EXTRAS=""
COPY constraints.txt /tmp/constraints.txt
# torch by itself first: this layer, by far the largest, stays when the code changes.
RUN python -m pip install --no-cache-dir --constraint /tmp/constraints.txt \
    ${TORCH_INDEX:+--index-url "$TORCH_INDEX"} torch torchvision
COPY --from=build /wheel /wheel
RUN wheel="$(echo /wheel/*.whl)" && \
    python -m pip install --no-cache-dir --constraint /tmp/constraints.txt "${wheel}${EXTRAS}" && \
    useradd --uid 1000 --create-home rnc && \
    install --directory --owner rnc /work
# Any --user may run it: what is cached goes where everybody may write.
ENV USER=rnc XDG_CACHE_HOME=/tmp/cache MPLCONFIGDIR=/tmp/cache/matplotlib PYTHONUNBUFFERED=1
USER rnc
WORKDIR /work
ENTRYPOINT ["rnc"]
CMD ["--help"]
