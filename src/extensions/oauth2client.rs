//! `oauth2client`: adds access tokens to the requests of clients, by OAuth 2.0's client credentials grant (RFC 6749, 4.4).
//!
//! A task fetches each token before the previous one expires. Requests wait in their queue while there is no token.

mod config;
mod endpoint;
#[cfg(test)]
mod tests;
mod tokens;

use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::task::JoinHandle;
use tokio::time::Instant;

pub use self::config::Config;
use self::endpoint::TokenEndpoint;
use self::tokens::AccessTokens;
use crate::component::{
    BuildContext, BuildError, Entry, Extension, ExtensionConfig, Origin, Services,
};
use crate::entry;
use crate::metric::{self, Metric};
use crate::pipeline::{Component, Undelivered};
use tributary_config::Capability;

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExtensionConfig> = entry!(
    dyn ExtensionConfig,
    Config,
    "oauth2client",
    aliases: &["oauth2_client"],
    "Adds access tokens to requests, by OAuth 2.0's client credentials grant.",
    &[],
    collector: Origin::Contrib,
    metrics: &[METRICS]
);

const METRICS: &[Metric] = &[metric::counter(
    "tributary_auth_token_requests",
    "Number of requests for access tokens, by extension and outcome",
)];

impl ExtensionConfig for Config {
    fn provides(&self) -> Vec<Capability> {
        vec![Capability::ClientAuth]
    }

    fn build(&self, cx: &BuildContext) -> Result<Extension, BuildError> {
        let endpoint = TokenEndpoint::new(self, &cx.id).map_err(BuildError)?;
        let tokens = Arc::new(AccessTokens::new(&cx.id, *self.expiry_buffer));
        Ok(Extension {
            component: Box::new(Renewal {
                waiting: Some((endpoint, tokens.clone())),
                task: None,
            }),
            services: Services {
                client_auth: Some(tokens),
                ..Services::default()
            },
        })
    }
}

/// The task that fetches tokens.
struct Renewal {
    waiting: Option<(TokenEndpoint, Arc<AccessTokens>)>,
    task: Option<JoinHandle<()>>,
}

impl Component for Renewal {
    fn start(&mut self) {
        if let Some((endpoint, tokens)) = self.waiting.take() {
            self.task = Some(tokio::spawn(async move { tokens.renew(&endpoint).await }));
        }
    }

    fn shutdown(self: Box<Self>, _: Instant) -> BoxFuture<'static, Undelivered> {
        if let Some(task) = &self.task {
            task.abort();
        }
        Box::pin(async { Undelivered::default() })
    }
}
