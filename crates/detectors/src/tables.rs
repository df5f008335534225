//! The attributes of each detector that has a fixed set, and whether they are emitted by default.

use crate::table::attributes;

attributes! {
    HerokuAttributes: "cloud.provider" = true, "heroku.app.id" = true, "heroku.dyno.id" = true,
        "heroku.release.commit" = true, "heroku.release.creation_timestamp" = true,
        "service.instance.id" = true, "service.name" = true, "service.version" = true;
    Ec2Attributes: "cloud.account.id" = true, "cloud.availability_zone" = true,
        "cloud.platform" = true, "cloud.provider" = true, "cloud.region" = true, "host.id" = true,
        "host.image.id" = true, "host.name" = true, "host.type" = true;
    EcsAttributes: "aws.ecs.cluster.arn" = true, "aws.ecs.launchtype" = true,
        "aws.ecs.task.arn" = true, "aws.ecs.task.family" = true, "aws.ecs.task.id" = true,
        "aws.ecs.task.revision" = true, "aws.log.group.arns" = true, "aws.log.group.names" = true,
        "aws.log.stream.arns" = true, "aws.log.stream.names" = true, "cloud.account.id" = true,
        "cloud.availability_zone" = true, "cloud.platform" = true, "cloud.provider" = true,
        "cloud.region" = true;
    EksAttributes: "cloud.account.id" = false, "cloud.availability_zone" = false,
        "cloud.platform" = true, "cloud.provider" = true, "cloud.region" = false,
        "host.id" = false, "host.image.id" = false, "host.name" = false, "host.type" = false,
        "k8s.cluster.name" = false;
    LambdaAttributes: "aws.log.group.names" = true, "aws.log.stream.names" = true,
        "cloud.platform" = true, "cloud.provider" = true, "cloud.region" = true,
        "faas.instance" = true, "faas.max_memory" = true, "faas.name" = true,
        "faas.version" = true;
    BeanstalkAttributes: "cloud.platform" = true, "cloud.provider" = true,
        "deployment.environment" = true, "service.instance.id" = true, "service.version" = true;
    AzureAttributes: "azure.resourcegroup.name" = true, "azure.vm.name" = true,
        "azure.vm.scaleset.name" = true, "azure.vm.size" = true, "cloud.account.id" = true,
        "cloud.availability_zone" = false, "cloud.platform" = true, "cloud.provider" = true,
        "cloud.region" = true, "host.id" = true, "host.name" = true;
    AksAttributes: "cloud.platform" = true, "cloud.provider" = true, "k8s.cluster.name" = false;
    GcpAttributes: "cloud.account.id" = true, "cloud.availability_zone" = true,
        "cloud.platform" = true, "cloud.provider" = true, "cloud.region" = true,
        "faas.instance" = true, "faas.name" = true, "faas.version" = true,
        "gcp.cloud_run.job.execution" = true, "gcp.cloud_run.job.task_index" = true,
        "gcp.gce.instance.hostname" = false, "gcp.gce.instance.name" = false,
        "gcp.gce.instance_group_manager.name" = true,
        "gcp.gce.instance_group_manager.region" = true,
        "gcp.gce.instance_group_manager.zone" = true, "host.id" = true, "host.name" = true,
        "host.type" = true, "k8s.cluster.name" = true;
    DockerAttributes: "container.image.name" = false, "container.name" = false,
        "host.name" = true, "os.type" = true;
    ConsulAttributes: "cloud.region" = true, "host.id" = true, "host.name" = true;
    KubernetesAttributes: "k8s.cluster.uid" = true, "k8s.node.name" = true, "k8s.node.uid" = true;
    SystemAttributes: "host.arch" = false, "host.cpu.cache.l2.size" = false,
        "host.cpu.family" = false, "host.cpu.model.id" = false, "host.cpu.model.name" = false,
        "host.cpu.stepping" = false, "host.cpu.vendor.id" = false, "host.id" = false,
        "host.interface" = false, "host.ip" = false, "host.mac" = false, "host.name" = true,
        "os.build.id" = false, "os.description" = false, "os.name" = false, "os.type" = true,
        "os.version" = false;
}
