#!/bin/sh
# One Kafka node by the variables of Apache's own image: KAFKA_A_B=c is a.b=c of server.properties, CLUSTER_ID the cluster of a new folder,
# KAFKA_HEAP_OPTS flags of the JVM.
set -eu
java="/opt/java/bin/java ${KAFKA_HEAP_OPTS:--Xmx512m} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.awt.headless=true
  -Dlog4j2.configurationFile=/opt/kafka/libs/log4j2.yaml -cp /opt/kafka/libs/*"
set -f # the JVM itself knows what the star of a class path is
unset KAFKA_HEAP_OPTS
env | sed -n 's/^KAFKA_\([A-Z0-9_]*\)=/\1 /p' | while read -r name value; do
  echo "$(echo "$name" | tr A-Z_ a-z.)=$value"
done >/tmp/server.properties
if [ ! -e "$KAFKA_LOG_DIRS/meta.properties" ]; then
  $java kafka.tools.StorageTool format --cluster-id="$CLUSTER_ID" -c /tmp/server.properties
fi
exec $java kafka.Kafka /tmp/server.properties
