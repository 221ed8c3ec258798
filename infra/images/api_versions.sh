#!/bin/sh
# Where Apache's own image has it: the health check of infra/compose asks by it.
exec /opt/java/bin/java -Xmx64m -Dlog4j2.configurationFile=/opt/kafka/libs/log4j2.yaml -cp '/opt/kafka/libs/*' \
  org.apache.kafka.tools.BrokerApiVersionsCommand "$@"
