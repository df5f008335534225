//! The current token, and its renewal.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue};
use metrics::{Counter, counter};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use super::endpoint::{FetchedToken, TokenEndpoint};
use tributary_config::ComponentId;
use tributary_net::auth::ClientAuthenticator;

/// Wait after the first failed request for a token, doubled after each further one up to the maximum.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Age below which a token that a server refuses is kept. A new token would be refused for the same reason, such as a
/// missing permission, so that the refusal is final.
const YOUNG: Duration = Duration::from_secs(10);

/// Minimum time between two tokens, for servers with tokens that have hardly any lifetime.
const MIN_LIFETIME: Duration = Duration::from_secs(1);

/// The current access token.
pub(super) struct AccessTokens {
    id: ComponentId,
    expiry_buffer: Duration,
    current: ArcSwapOption<AccessToken>,
    /// Number of changes of `current`.
    pub(super) changes: watch::Sender<u64>,
    refused: Notify,
    fetched: Counter,
    failed: Counter,
}

struct AccessToken {
    header: HeaderValue,
    fetched: Instant,
    expires: Instant,
}

impl AccessTokens {
    pub(super) fn new(id: &ComponentId, expiry_buffer: Duration) -> Self {
        let requests = |outcome: &'static str| {
            counter!(
                "tributary_auth_token_requests",
                "extension" => id.to_string(),
                "outcome" => outcome
            )
        };
        AccessTokens {
            id: id.clone(),
            expiry_buffer,
            current: ArcSwapOption::empty(),
            changes: watch::Sender::new(0),
            refused: Notify::new(),
            fetched: requests("success"),
            failed: requests("failure"),
        }
    }

    /// Fetches tokens until the future is dropped.
    pub(super) async fn renew(&self, endpoint: &TokenEndpoint) {
        let mut wait = FIRST_WAIT;
        let mut failing = false;
        loop {
            match endpoint.fetch().await {
                Ok(token) => {
                    self.fetched.increment(1);
                    if failing {
                        self.log_end();
                    }
                    (wait, failing) = (FIRST_WAIT, false);
                    let lifetime = self.replace(token);
                    // A server that refuses the token ends the wait.
                    let _ = timeout(lifetime, self.refused.notified()).await;
                }
                Err(reason) => {
                    self.failed.increment(1);
                    if !failing {
                        self.log_begin(&reason);
                    }
                    failing = true;
                    sleep(wait.mul_f64(0.75 + fastrand::f64() / 2.0)).await;
                    wait = (wait * 2).min(MAX_WAIT);
                }
            }
        }
    }

    /// Sets the current token, and returns the time until the next one is due.
    pub(super) fn replace(&self, token: FetchedToken) -> Duration {
        let now = Instant::now();
        let lifetime = token.lifetime;
        self.set(Some(AccessToken {
            header: token.header,
            fetched: now,
            // A lifetime of centuries is as good as one of a year.
            expires: now + lifetime.min(Duration::from_secs(365 * 24 * 3600)),
        }));
        let due = lifetime.saturating_sub(self.expiry_buffer);
        due.max(lifetime / 2).max(MIN_LIFETIME)
    }

    fn set(&self, token: Option<AccessToken>) {
        self.current.store(token.map(Arc::new));
        self.changes.send_modify(|changes| *changes += 1);
    }

    fn log_begin(&self, reason: &str) {
        warn!(
            otelcol.component.id = %self.id,
            otelcol.component.kind = "extension",
            reason,
            "Cannot fetch an access token; retrying. Data waits in the sending queues once the last token has expired."
        );
    }

    fn log_end(&self) {
        info!(
            otelcol.component.id = %self.id,
            otelcol.component.kind = "extension",
            "Access tokens can be fetched again."
        );
    }
}

impl ClientAuthenticator for AccessTokens {
    fn add(&self, headers: &mut HeaderMap) {
        if let Some(token) = &*self.current.load() {
            headers.insert(AUTHORIZATION, token.header.clone());
        }
    }

    fn version(&self) -> u64 {
        *self.changes.borrow()
    }

    fn refresh(&self) {
        let is_old = |token: &AccessToken| token.fetched.elapsed() >= YOUNG;
        if self
            .current
            .load()
            .as_ref()
            .is_some_and(|token| is_old(token))
        {
            self.set(None);
            self.refused.notify_one();
        }
    }

    fn missing(&self) -> Option<String> {
        let current = self.current.load();
        match current.as_ref() {
            Some(token) if token.expires > Instant::now() => None,
            _ => Some(format!(
                "the extension `{}` has no access token yet",
                self.id
            )),
        }
    }
}
