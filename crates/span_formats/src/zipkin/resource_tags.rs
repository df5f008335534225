//! Tags that describe the resource of a span, not the span.

/// Whether a tag describes the resource.
pub(super) fn is_of_resource(key: &str) -> bool {
    RESOURCE_TAGS.binary_search(&key).is_ok()
}

/// Attributes of resources in the semantic conventions, and in OpenCensus, that the Collector looks for. Sorted.
const RESOURCE_TAGS: &[&str] = &[
    "aws.ecs.cluster.arn",
    "aws.ecs.container.arn",
    "aws.ecs.launchtype",
    "aws.ecs.task.arn",
    "aws.ecs.task.family",
    "aws.ecs.task.revision",
    "aws.eks.cluster.arn",
    "aws.log.group.arns",
    "aws.log.group.names",
    "aws.log.stream.arns",
    "aws.log.stream.names",
    "cloud.account.id",
    "cloud.availability_zone",
    "cloud.platform",
    "cloud.provider",
    "cloud.region",
    "cloud.resource_id",
    "container.id",
    "container.image.name",
    "container.image.tag",
    "container.name",
    "container.runtime",
    "deployment.environment",
    "device.id",
    "device.manufacturer",
    "device.model.identifier",
    "device.model.name",
    "faas.id",
    "faas.instance",
    "faas.max_memory",
    "faas.name",
    "faas.version",
    "host.arch",
    "host.id",
    "host.image.id",
    "host.image.name",
    "host.image.version",
    "host.name",
    "host.type",
    "k8s.cluster.name",
    "k8s.container.name",
    "k8s.container.restart_count",
    "k8s.cronjob.name",
    "k8s.cronjob.uid",
    "k8s.daemonset.name",
    "k8s.daemonset.uid",
    "k8s.deployment.name",
    "k8s.deployment.uid",
    "k8s.job.name",
    "k8s.job.uid",
    "k8s.namespace.name",
    "k8s.node.name",
    "k8s.node.uid",
    "k8s.pod.name",
    "k8s.pod.uid",
    "k8s.replicaset.name",
    "k8s.replicaset.uid",
    "k8s.statefulset.name",
    "k8s.statefulset.uid",
    "opencensus.exporterversion",
    "opencensus.resourcetype",
    "opencensus.starttime",
    "os.description",
    "os.name",
    "os.type",
    "os.version",
    "otlp.service.name.source",
    "process.command",
    "process.command_args",
    "process.command_line",
    "process.executable.name",
    "process.executable.path",
    "process.owner",
    "process.pid",
    "process.runtime.description",
    "process.runtime.name",
    "process.runtime.version",
    "service.instance.id",
    "service.name",
    "service.namespace",
    "service.version",
    "telemetry.auto.version",
    "telemetry.sdk.language",
    "telemetry.sdk.name",
    "telemetry.sdk.version",
    "webengine.description",
    "webengine.name",
    "webengine.version",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_of_resources_are_sorted() {
        assert!(RESOURCE_TAGS.is_sorted());
        assert!(is_of_resource("service.version") && !is_of_resource("http.method"));
    }
}
