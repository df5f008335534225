//! `lambda`: the environment variables of the runtime of Lambda.

use crate::attributes::AttributeValue::Texts;
use crate::attributes::{DetectedResource, Gathered};
use crate::{Detection, DetectionError};

pub(crate) fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let machine = detection.machine;
    let Some(name) = machine.filled("AWS_LAMBDA_FUNCTION_NAME") else {
        return detection.absent("AWS_LAMBDA_FUNCTION_NAME is not set");
    };
    let variable = |name| machine.variable(name);
    let group = variable("AWS_LAMBDA_LOG_GROUP_NAME");
    let stream = variable("AWS_LAMBDA_LOG_STREAM_NAME");
    let mut gathered = Gathered::new(&detection.config.lambda.resource_attributes);
    gathered
        .text("cloud.provider", "aws")
        .text("cloud.platform", "aws_lambda")
        .optional("cloud.region", variable("AWS_REGION"))
        .text("faas.name", name)
        .optional("faas.version", variable("AWS_LAMBDA_FUNCTION_VERSION"))
        .optional("faas.instance", stream)
        .optional(
            "faas.max_memory",
            variable("AWS_LAMBDA_FUNCTION_MEMORY_SIZE"),
        );
    for (key, value) in [
        ("aws.log.group.names", group),
        ("aws.log.stream.names", stream),
    ] {
        if let Some(value) = value {
            gathered.set(key, Texts(vec![value.to_owned()]));
        }
    }
    Ok(gathered.finish())
}

#[cfg(test)]
mod tests {
    use crate::BuiltInDetector::Lambda;
    use crate::testing::{Fixture, text_pairs};

    #[tokio::test]
    async fn function_has_its_name_and_version() {
        let fixture = Fixture::new(&[
            ("AWS_LAMBDA_FUNCTION_NAME", "f"),
            ("AWS_LAMBDA_FUNCTION_VERSION", "7"),
            ("AWS_LAMBDA_LOG_STREAM_NAME", "s"),
            ("AWS_REGION", "eu-west-1"),
        ]);
        let found = fixture.detect(Lambda).await.unwrap();
        assert_eq!(
            text_pairs(&found),
            [
                ("cloud.platform", "aws_lambda"),
                ("cloud.provider", "aws"),
                ("cloud.region", "eu-west-1"),
                ("faas.instance", "s"),
                ("faas.name", "f"),
                ("faas.version", "7"),
            ]
        );
        assert_eq!(found.attributes.len(), 7, "with the list of log streams");
    }
}
