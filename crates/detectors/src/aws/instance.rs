//! The instance metadata service of EC2 (IMDS), version 2, with version 1 as fallback.

use std::time::Duration;

use http::{Method, StatusCode};
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::Detection;
use crate::http::{Service, ServiceError};
use crate::json;

/// Time to live of a session token, in seconds: the maximum.
const TOKEN_SECONDS: &str = "21600";

/// Maximum time to wait for a session token. In a container, the response may be lost, because its hop limit is 1 by
/// default; version 1 still works then.
const TOKEN_WAIT: Duration = Duration::from_secs(1);

/// A session with the instance metadata service.
pub(super) struct InstanceMetadata {
    service: Service,
    /// `None` for version 1.
    token: Option<String>,
    attempts: u32,
    max_backoff: Duration,
}

impl InstanceMetadata {
    /// Opens a session. Requests are attempted `attempts` times, with waits of at most `max_backoff`.
    pub(super) async fn open(
        detection: &Detection<'_>,
        attempts: u32,
        max_backoff: Duration,
    ) -> Result<Self, ServiceError> {
        let machine = detection.machine;
        let is_true = |name| {
            let value = machine.variable(name).unwrap_or_default();
            value.eq_ignore_ascii_case("true")
        };
        if is_true("AWS_EC2_METADATA_DISABLED") {
            let reason = "AWS_EC2_METADATA_DISABLED is true".to_owned();
            return Err(ServiceError::Unreachable(reason));
        }
        // The variable of Amazon's SDKs.
        let endpoint = machine.filled("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        let endpoint = endpoint.unwrap_or(&machine.link_local);
        let service = Service::new(endpoint, detection.deadline)?;
        let until = Instant::now() + TOKEN_WAIT;
        let for_token = Service::new(endpoint, detection.deadline)?.until(until);
        let ttl = [("x-aws-ec2-metadata-token-ttl-seconds", TOKEN_SECONDS)];
        let token = for_token.send(Method::PUT, "/latest/api/token", &ttl).await;
        let token = match token {
            Ok(response) => Some(response.body),
            Err(error) if is_true("AWS_EC2_METADATA_V1_DISABLED") => return Err(error),
            Err(error) => match error.status() {
                Some(
                    StatusCode::FORBIDDEN | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED,
                ) => None,
                None if Instant::now() >= until => None,
                _ => return Err(error),
            },
        };
        Ok(InstanceMetadata {
            service,
            token,
            attempts,
            max_backoff,
        })
    }

    /// Returns the text at a path below `/latest/`, retrying after temporary failures.
    pub(super) async fn get(&self, path: &str) -> Result<String, ServiceError> {
        let path = format!("/latest/{path}");
        let token = self.token.as_deref();
        let headers = token.map(|token| ("x-aws-ec2-metadata-token", token));
        let mut wait = Duration::from_secs(1);
        let mut attempt = 1;
        loop {
            let error = match self.service.get(&path, headers.as_slice()).await {
                Ok(response) => return Ok(response.body),
                Err(error) => error,
            };
            let is_temporary = error
                .status()
                .is_none_or(|status| status.is_server_error() || status.as_u16() == 429);
            if !is_temporary || attempt >= self.attempts {
                return Err(error);
            }
            let pause = wait.min(self.max_backoff);
            if Instant::now() + pause >= self.service.deadline() {
                return Err(error);
            }
            sleep(pause).await;
            attempt += 1;
            wait *= 2;
        }
    }

    /// Returns the instance identity document.
    pub(super) async fn document(&self) -> Result<Value, ServiceError> {
        let document = self.get("dynamic/instance-identity/document").await?;
        json::parse("the instance metadata service", &document)
    }
}
