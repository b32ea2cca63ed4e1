# earmark in a container: `docker build --tag earmark .`, then
# `docker run --rm --volume "$PWD:/data" earmark scan --labels LABELS.csv --scores SCORES.csv`.
ARG PYTHON=3.12

FROM python:${PYTHON} AS build
COPY . /source
RUN pip wheel --no-cache-dir --no-deps --wheel-dir /wheels /source

FROM python:${PYTHON}-slim
# `find` brings everything that `earmark find` needs; an empty word, the core alone.
ARG EXTRAS=find
# Where the CPU's torch comes from; https://pypi.org/simple for the one that knows GPUs.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
COPY --from=build /wheels /wheels
COPY constraints.txt /wheels/
RUN wheel="$(echo /wheels/earmark-*.whl)" \
    && pip install --no-cache-dir --extra-index-url "$TORCH_INDEX" \
        --constraint /wheels/constraints.txt "${wheel}${EXTRAS:+[$EXTRAS]}" \
    && useradd --create-home --uid 1000 earmark
USER 1000
WORKDIR /data
ENTRYPOINT ["earmark"]
CMD ["--help"]
