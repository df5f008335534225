//! `ec2`: the instance metadata of EC2.

use http::StatusCode;
use regex::Regex;

use super::instance::InstanceMetadata;
use crate::attributes::{DetectedResource, Gathered};
use crate::http::ServiceError;
use crate::json::text;
use crate::{Detection, DetectionError};

pub(crate) async fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let section = &detection.config.ec2;
    let fails = detection.config.fail_on_missing_metadata || section.fail_on_missing_metadata;
    let absent = |error: ServiceError| match fails {
        true => Err(DetectionError(error.to_string())),
        false => detection.absent(error),
    };
    let attempts = section.max_attempts;
    let opened = InstanceMetadata::open(detection, attempts, section.max_backoff.0).await;
    let metadata = match opened {
        Ok(metadata) => metadata,
        Err(error) => return absent(error),
    };
    if let Err(error) = metadata.get("meta-data/instance-id").await {
        return absent(error);
    }
    let document = match metadata.document().await {
        Ok(document) => document,
        // Other clouds imitate a part of the service, without this document.
        Err(error) if error.status() == Some(StatusCode::NOT_FOUND) => return absent(error),
        Err(error) => return Err(DetectionError(error.to_string())),
    };
    let hostname = match metadata.get("meta-data/hostname").await {
        Err(error) if fails => return Err(DetectionError(error.to_string())),
        hostname => hostname.ok(),
    };
    let mut gathered = Gathered::new(&section.resource_attributes);
    gathered
        .text("cloud.provider", "aws")
        .text("cloud.platform", "aws_ec2")
        .text("cloud.region", text(&document, "region"))
        .text("cloud.account.id", text(&document, "accountId"))
        .text(
            "cloud.availability_zone",
            text(&document, "availabilityZone"),
        )
        .text("host.id", text(&document, "instanceId"))
        .text("host.image.id", text(&document, "imageId"))
        .text("host.type", text(&document, "instanceType"))
        .optional("host.name", hostname);
    for (key, value) in tags(&metadata, &section.patterns()).await {
        gathered.extra(format!("ec2.tag.{key}"), value);
    }
    Ok(gathered.finish())
}

/// Returns the tags of the instance whose keys match; none if the instance does not allow access to tags.
async fn tags(metadata: &InstanceMetadata, patterns: &[Regex]) -> Vec<(String, String)> {
    let mut tags = Vec::new();
    if patterns.is_empty() {
        return tags;
    }
    let keys = metadata.get("meta-data/tags/instance").await;
    for key in keys.unwrap_or_default().lines().map(str::trim) {
        if !key.is_empty()
            && patterns.iter().any(|pattern| pattern.is_match(key))
            && let Ok(value) = metadata
                .get(&format!("meta-data/tags/instance/{key}"))
                .await
        {
            tags.push((key.to_owned(), value));
        }
    }
    tags
}

#[cfg(test)]
mod tests {
    use crate::BuiltInDetector::Ec2;
    use crate::testing::{Fixture, MockService, text_pairs};

    const DOCUMENT: &str = r#"{"region": "eu-west-1", "accountId": "42", "availabilityZone": "eu-west-1a",
        "instanceId": "i-1", "imageId": "ami-1", "instanceType": "m7g.large", "unknown": [1]}"#;

    fn version_2(path: &str, token: Option<&str>) -> Option<(u16, String)> {
        let body = match (path, token) {
            ("PUT /latest/api/token", None) => "secret",
            ("PUT /latest/api/token", _) => unreachable!("a token was sent for a token"),
            (_, token) if token != Some("secret") => return Some((401, String::new())),
            ("GET /latest/meta-data/instance-id", _) => "i-1",
            ("GET /latest/dynamic/instance-identity/document", _) => DOCUMENT,
            ("GET /latest/meta-data/hostname", _) => "ip-10-0-0-1",
            ("GET /latest/meta-data/tags/instance", _) => "Name\nteam\nother",
            ("GET /latest/meta-data/tags/instance/Name", _) => "web",
            ("GET /latest/meta-data/tags/instance/team", _) => "payments",
            _ => return None,
        };
        Some((200, body.to_owned()))
    }

    const ALL: [(&str, &str); 9] = [
        ("cloud.account.id", "42"),
        ("cloud.availability_zone", "eu-west-1a"),
        ("cloud.platform", "aws_ec2"),
        ("cloud.provider", "aws"),
        ("cloud.region", "eu-west-1"),
        ("host.id", "i-1"),
        ("host.image.id", "ami-1"),
        ("host.name", "ip-10-0-0-1"),
        ("host.type", "m7g.large"),
    ];

    fn token(request: &http::Request<bytes::Bytes>) -> Option<&str> {
        let token = request.headers().get("x-aws-ec2-metadata-token");
        token.map(|token| token.to_str().unwrap())
    }

    #[tokio::test]
    async fn instance_has_its_identity() {
        let service = MockService::start(|path, request| version_2(path, token(request))).await;
        let fixture = Fixture::at(&[], &service);
        let found = fixture.detect(Ec2).await.unwrap();
        assert_eq!(text_pairs(&found), ALL);
        assert_eq!(found.schema_url, "https://opentelemetry.io/schemas/1.43.0");
    }

    #[tokio::test]
    async fn variable_of_the_sdks_names_the_endpoint() {
        let service = MockService::start(|path, request| version_2(path, token(request))).await;
        let endpoint = ("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url.as_str());
        let found = Fixture::new(&[endpoint]).detect(Ec2).await.unwrap();
        assert_eq!(text_pairs(&found), ALL);
    }

    #[tokio::test]
    async fn matching_tags_become_attributes() {
        let service = MockService::start(|path, request| version_2(path, token(request))).await;
        let mut fixture = Fixture::at(&[], &service);
        fixture.configure("ec2: {tags: ['^Na', team], tags_from_imds: true}");
        let found = fixture.detect(Ec2).await.unwrap();
        let pairs = text_pairs(&found);
        assert!(pairs.contains(&("ec2.tag.Name", "web")), "{pairs:?}");
        assert!(pairs.contains(&("ec2.tag.team", "payments")), "{pairs:?}");
        assert_eq!(pairs.len(), ALL.len() + 2);
    }

    #[tokio::test]
    async fn disabled_attributes_are_omitted() {
        let service = MockService::start(|path, request| version_2(path, token(request))).await;
        let mut fixture = Fixture::at(&[], &service);
        fixture.configure("ec2: {resource_attributes: {host.id: {enabled: false}}}");
        let found = fixture.detect(Ec2).await.unwrap();
        assert_eq!(found.attributes.len(), ALL.len() - 1);
        assert!(!text_pairs(&found).contains(&("host.id", "i-1")));
    }

    #[tokio::test]
    async fn service_without_tokens_is_asked_without() {
        let service = MockService::start(|path, request| {
            assert!(token(request).is_none());
            match path {
                "PUT /latest/api/token" => Some((404, String::new())),
                path => version_2(path, Some("secret")),
            }
        })
        .await;
        let found = Fixture::at(&[], &service).detect(Ec2).await.unwrap();
        assert_eq!(text_pairs(&found), ALL);
    }

    #[tokio::test]
    async fn partial_imitation_is_no_instance() {
        let service = MockService::start(|path, request| match path {
            "GET /latest/dynamic/instance-identity/document" => Some((404, String::new())),
            path => version_2(path, token(request)),
        })
        .await;
        let mut fixture = Fixture::at(&[], &service);
        assert!(fixture.detect(Ec2).await.unwrap().attributes.is_empty());
        fixture.config.fail_on_missing_metadata = true;
        let error = fixture.detect(Ec2).await.unwrap_err().to_string();
        assert!(error.contains("responded with 404"), "{error}");
    }

    #[tokio::test]
    async fn redirects_are_not_followed() {
        let service = MockService::start(|path, request| match path {
            "PUT /latest/api/token" => version_2(path, None),
            _ => {
                assert_eq!(token(request), Some("secret"));
                Some((302, "/elsewhere".to_owned()))
            }
        })
        .await;
        let mut fixture = Fixture::at(&[], &service);
        fixture.config.fail_on_missing_metadata = true;
        let error = fixture.detect(Ec2).await.unwrap_err().to_string();
        assert!(
            error.ends_with("302 Found; redirects are not followed"),
            "{error}"
        );
        assert_eq!(service.requests(), 2);
    }

    #[tokio::test]
    async fn failing_service_is_retried() {
        let service = MockService::start(|path, request| match path {
            "GET /latest/meta-data/instance-id" => Some((500, String::new())),
            path => version_2(path, token(request)),
        })
        .await;
        let mut fixture = Fixture::at(&[], &service);
        fixture.configure("ec2: {max_attempts: 3, max_backoff: 1ms}");
        assert!(fixture.detect(Ec2).await.unwrap().attributes.is_empty());
        assert_eq!(service.requests(), 4);
    }
}
