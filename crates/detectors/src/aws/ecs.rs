//! `ecs`: the task metadata endpoint of ECS, version 4 or 3.

use serde_json::Value;

use crate::attributes::AttributeValue::Texts;
use crate::attributes::{DetectedResource, Gathered};
use crate::http::{Service, ServiceError};
use crate::json::{self, filled, text};
use crate::tables::EcsAttributes;
use crate::{Detection, DetectionError};

pub(crate) async fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let machine = detection.machine;
    let endpoint = machine
        .filled("ECS_CONTAINER_METADATA_URI_V4")
        .or_else(|| machine.filled("ECS_CONTAINER_METADATA_URI"));
    let Some(endpoint) = endpoint else {
        return detection.absent(
            "no ECS task: neither ECS_CONTAINER_METADATA_URI_V4 nor ECS_CONTAINER_METADATA_URI is set",
        );
    };
    let failed = |error: ServiceError| DetectionError(error.to_string());
    let endpoint = endpoint.trim_end_matches('/');
    let service = Service::new(endpoint, detection.deadline).map_err(failed)?;
    let task = fetch(&service, "/task").await.map_err(failed)?;
    let mut gathered = Gathered::new(&detection.config.ecs.resource_attributes);
    let arn = text(&task, "TaskARN");
    let (region, account, id) = parts_of_arn(arn);
    let cluster = match text(&task, "Cluster") {
        arn if arn.contains(':') => arn.to_owned(),
        name => format!("arn:aws:ecs:{region}:{account}:cluster/{name}"),
    };
    let launch_type = text(&task, "LaunchType").to_ascii_lowercase();
    let is_known = ["ec2", "fargate"].contains(&launch_type.as_str());
    let present = |text| Some(text).filter(|text: &&str| !text.is_empty());
    gathered
        .text("cloud.provider", "aws")
        .text("cloud.platform", "aws_ecs")
        .text("aws.ecs.task.arn", arn)
        .text("aws.ecs.task.family", text(&task, "Family"))
        .text("aws.ecs.task.revision", text(&task, "Revision"))
        .optional("cloud.account.id", present(account))
        .optional("cloud.region", present(region))
        .optional("aws.ecs.task.id", present(id))
        .text("aws.ecs.cluster.arn", cluster)
        .optional("cloud.availability_zone", filled(&task, "AvailabilityZone"))
        .optional("aws.ecs.launchtype", is_known.then_some(launch_type));
    match fetch(&service, "").await {
        Ok(own) => add_logs(&task, &own, account, &mut gathered),
        Err(error) if detection.config.fail_on_missing_metadata => return Err(failed(error)),
        Err(_) => {}
    }
    Ok(gathered.finish())
}

async fn fetch(service: &Service, path: &str) -> Result<Value, ServiceError> {
    let response = service.get(path, &[]).await?;
    json::parse("the task metadata endpoint", &response.body)
}

/// Returns region, account and task id of an ARN such as `arn:aws:ecs:REGION:ACCOUNT:task/CLUSTER/ID`.
fn parts_of_arn(arn: &str) -> (&str, &str, &str) {
    match arn.split(':').collect::<Vec<_>>().as_slice() {
        [_, _, _, region, account, task, ..] => {
            (region, account, task.rsplit('/').next().unwrap_or_default())
        }
        _ => ("", "", ""),
    }
}

/// Adds the CloudWatch logs of the other running containers of the task.
fn add_logs(task: &Value, own: &Value, account: &str, gathered: &mut Gathered<'_, EcsAttributes>) {
    let mut logs: [Vec<String>; 4] = Default::default();
    let containers = task.get("Containers").and_then(Value::as_array);
    for container in containers.into_iter().flatten() {
        let option = |name: &str| text(container, &format!("LogOptions/awslogs-{name}"));
        let (group, region, stream) = (option("group"), option("region"), option("stream"));
        let is_logged = text(container, "Type") == "NORMAL"
            && text(container, "KnownStatus") == "RUNNING"
            && text(container, "LogDriver") == "awslogs"
            && text(container, "DockerId") != text(own, "DockerId")
            && !(group.is_empty() && region.is_empty() && stream.is_empty());
        if is_logged {
            let group_arn = format!("arn:aws:logs:{region}:{account}:log-group:{group}");
            let stream_arn = format!("{group_arn}:log-stream:{stream}");
            let values = [group.to_owned(), group_arn, stream.to_owned(), stream_arn];
            for (list, value) in logs.iter_mut().zip(values) {
                list.push(value);
            }
        }
    }
    let keys = [
        "aws.log.group.names",
        "aws.log.group.arns",
        "aws.log.stream.names",
        "aws.log.stream.arns",
    ];
    for (key, list) in keys.into_iter().zip(logs) {
        if !list.is_empty() {
            gathered.set(key, Texts(list));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::AttributeValue::Texts;
    use crate::BuiltInDetector::Ecs;
    use crate::testing::{Fixture, MockService, text_pairs};

    const TASK: &str = r#"{"Cluster": "default", "TaskARN": "arn:aws:ecs:us-west-2:42:task/default/158d",
        "Family": "curl", "Revision": "26", "AvailabilityZone": "us-west-2d", "LaunchType": "FARGATE",
        "Containers": [
            {"DockerId": "self", "Type": "NORMAL", "KnownStatus": "RUNNING", "LogDriver": "awslogs",
             "LogOptions": {"awslogs-group": "g0", "awslogs-region": "us-west-2", "awslogs-stream": "s0"}},
            {"DockerId": "app", "Type": "NORMAL", "KnownStatus": "RUNNING", "LogDriver": "awslogs",
             "LogOptions": {"awslogs-group": "g", "awslogs-region": "us-west-2", "awslogs-stream": "s"}}]}"#;

    fn answer(path: &str) -> Option<(u16, String)> {
        match path {
            "GET /v4/abc/task" => Some((200, TASK.to_owned())),
            "GET /v4/abc" => Some((200, r#"{"DockerId": "self"}"#.to_owned())),
            _ => None,
        }
    }

    #[tokio::test]
    async fn task_has_its_identity_and_logs() {
        let service = MockService::start(|path, _| answer(path)).await;
        let uri = format!("{}/v4/abc", service.url);
        let fixture = Fixture::new(&[("ECS_CONTAINER_METADATA_URI_V4", &uri)]);
        let found = fixture.detect(Ecs).await.unwrap();
        assert_eq!(
            text_pairs(&found),
            [
                (
                    "aws.ecs.cluster.arn",
                    "arn:aws:ecs:us-west-2:42:cluster/default"
                ),
                ("aws.ecs.launchtype", "fargate"),
                (
                    "aws.ecs.task.arn",
                    "arn:aws:ecs:us-west-2:42:task/default/158d"
                ),
                ("aws.ecs.task.family", "curl"),
                ("aws.ecs.task.id", "158d"),
                ("aws.ecs.task.revision", "26"),
                ("cloud.account.id", "42"),
                ("cloud.availability_zone", "us-west-2d"),
                ("cloud.platform", "aws_ecs"),
                ("cloud.provider", "aws"),
                ("cloud.region", "us-west-2"),
            ]
        );
        let streams = found.attributes.iter();
        let streams = streams.filter(|(key, _)| key == "aws.log.stream.arns");
        let arn = "arn:aws:logs:us-west-2:42:log-group:g:log-stream:s".to_owned();
        assert!(streams.map(|(_, value)| value).eq([&Texts(vec![arn])]));
    }

    #[tokio::test]
    async fn failing_endpoint_is_an_error() {
        let service = MockService::start(|_, _| Some((500, String::new()))).await;
        let fixture = Fixture::new(&[("ECS_CONTAINER_METADATA_URI", &service.url)]);
        assert!(fixture.detect(Ecs).await.is_err());
        assert!(
            Fixture::new(&[])
                .detect(Ecs)
                .await
                .unwrap()
                .attributes
                .is_empty()
        );
    }
}
