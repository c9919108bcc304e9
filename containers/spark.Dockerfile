# An image for Spark on Kubernetes with Pluribus in it: driver and executors start from it.
#
#   docker build -f containers/spark.Dockerfile --build-arg PYTHON=3.11 -t REGISTRY/pluribus-spark .
#   pluribus pipeline run job.py --master k8s://https://HOST:PORT \
#       --conf spark.kubernetes.container.image=REGISTRY/pluribus-spark --checkpoint s3a://BUCKET/progress
#
# SPARK must be the version that pluribus[spark] is bounded to, in the minor version too. PYTHON must be the version, in
# the minor version too, of the Python that runs `pluribus` where the driver is: Spark refuses executors with another
# one. Spark's own image brings the Python of its Ubuntu, which is 3.10 and too old for Pluribus, so only Spark itself and
# its entrypoint are taken from there.
ARG SPARK=4.3.0
ARG PYTHON=3.11
FROM apache/spark:${SPARK}-scala2.13-java17-ubuntu AS spark

FROM python:${PYTHON}-slim-bookworm
# What Spark's entrypoint calls: bash, tini, gosu where the container is started as root.
RUN apt-get update \
    && apt-get install -y --no-install-recommends openjdk-17-jre-headless bash tini gosu libnss-wrapper procps \
    && rm -rf /var/lib/apt/lists/* \
    && groupadd --system --gid 185 spark \
    && useradd --system --uid 185 --gid spark --home-dir /nonexistent spark
COPY --from=spark --chown=spark:spark /opt/spark /opt/spark
COPY --from=spark /opt/entrypoint.sh /opt/decom.sh /opt/
COPY . /opt/pluribus
# Without the extra: the image has its Spark already, and pyspark from pip would be a second one.
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev \
    && pip install --no-cache-dir /opt/pluribus "pyarrow>=15" "pandas>=2.2,<3" \
    && apt-get purge -y gcc libc6-dev \
    && apt-get autoremove -y \
    && rm -rf /var/lib/apt/lists/* /opt/pluribus
ENV SPARK_HOME=/opt/spark \
    PYSPARK_PYTHON=/usr/local/bin/python3
WORKDIR /opt/spark/work-dir
USER spark
ENTRYPOINT ["/opt/entrypoint.sh"]
