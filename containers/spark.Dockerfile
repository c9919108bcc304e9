# An image for Spark on Kubernetes with Pluribus in it: driver and executors start from it.
#
#   docker build -f containers/spark.Dockerfile -t REGISTRY/pluribus-spark .
#   pluribus pipeline run job.py --master k8s://https://HOST:PORT \
#       --conf spark.kubernetes.container.image=REGISTRY/pluribus-spark --checkpoint s3a://BUCKET/progress
#
# The base image has Spark's entrypoint, Java 17 and Python 3. Its Spark must be the one that pluribus[spark] is bounded
# to, in the minor version too.
ARG SPARK=4.3.0
FROM apache/spark:${SPARK}-python3

USER root
COPY . /opt/pluribus
# Without the extra: the image has its Spark already, and pyspark from pip would be a second one.
RUN apt-get update \
    && apt-get install -y --no-install-recommends python3-pip gcc python3-dev \
    && pip3 install --no-cache-dir /opt/pluribus "pyarrow>=15" "pandas>=2.2,<3" \
    && apt-get purge -y gcc python3-dev \
    && apt-get autoremove -y \
    && rm -rf /var/lib/apt/lists/* /opt/pluribus
ENV PYSPARK_PYTHON=python3
USER spark
