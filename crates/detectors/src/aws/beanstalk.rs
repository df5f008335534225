//! `elastic_beanstalk`: the X-Ray configuration file of an Elastic Beanstalk instance.

use crate::attributes::{DetectedResource, Gathered};
use crate::json::{self, text};
use crate::{Detection, DetectionError};

const FILE: &str = "var/elasticbeanstalk/xray/environment.conf";

pub(crate) fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let file = match detection.machine.read(FILE) {
        Ok(file) => file,
        Err(error) => return detection.absent(format!("cannot read /{FILE}: {error}")),
    };
    let file = json::parse(&format!("/{FILE}"), &file);
    let file = file.map_err(|error| DetectionError(error.to_string()))?;
    // The deployment id is a number.
    let id = file
        .get("deployment_id")
        .and_then(serde_json::Value::as_i64);
    let section = &detection.config.elasticbeanstalk;
    let mut gathered = Gathered::new(&section.resource_attributes);
    gathered
        .text("cloud.provider", "aws")
        .text("cloud.platform", "aws_elastic_beanstalk")
        .text("service.instance.id", id.unwrap_or_default().to_string())
        .text("deployment.environment", text(&file, "environment_name"))
        .text("service.version", text(&file, "version_label"));
    Ok(gathered.finish())
}

#[cfg(test)]
mod tests {
    use crate::BuiltInDetector::ElasticBeanstalk;
    use crate::testing::{Fixture, text_pairs};

    #[tokio::test]
    async fn file_of_the_instance_has_its_deployment() {
        let fixture = Fixture::new(&[]);
        let absent = fixture.detect(ElasticBeanstalk).await.unwrap();
        assert!(absent.attributes.is_empty());
        fixture.write(
            super::FILE,
            r#"{"deployment_id": 23, "version_label": "v1", "environment_name": "prod"}"#,
        );
        let found = fixture.detect(ElasticBeanstalk).await.unwrap();
        assert_eq!(
            text_pairs(&found),
            [
                ("cloud.platform", "aws_elastic_beanstalk"),
                ("cloud.provider", "aws"),
                ("deployment.environment", "prod"),
                ("service.instance.id", "23"),
                ("service.version", "v1"),
            ]
        );
        fixture.write(super::FILE, "no json");
        assert!(fixture.detect(ElasticBeanstalk).await.is_err());
    }
}
