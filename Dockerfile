# The command line, on a CPU:
#   docker build -t steincritic .
#   docker run --rm -v "$PWD:/data" steincritic check data.csv --model model.py:q --out report
# With --build-arg PIP_EXTRA_INDEX_URL=..., the index of torch's CPU builds, the image is a tenth as large.
FROM python:3.12-slim AS build
ARG PIP_EXTRA_INDEX_URL
WORKDIR /build
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN python -m venv /opt/steincritic \
 && /opt/steincritic/bin/pip install --no-cache-dir '.[parquet,sklearn]'

FROM python:3.12-slim
COPY --from=build /opt/steincritic /opt/steincritic
RUN useradd --create-home user && mkdir /data && chown user /data
ENV PATH=/opt/steincritic/bin:$PATH XDG_CACHE_HOME=/tmp/cache MPLCONFIGDIR=/tmp/matplotlib
USER user
WORKDIR /data
ENTRYPOINT ["steincritic"]
CMD ["--help"]
