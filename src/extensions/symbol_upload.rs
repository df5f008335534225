//! Receives binaries and debug information from build systems, for the processor `symbolication`.
//!
//! `PUT /symbols/BUILD_ID` with the file as the body: debug information, or a binary that contains
//! it. `PUT /symbols/BUILD_ID/executable` stores the binary in addition. `collector symbols upload`
//! sends both.
//!
//! | status | meaning |
//! |---|---|
//! | 201 | the file is stored |
//! | 400 | the build id is invalid, or differs from that of the file |
//! | 401 | the client is not authorized |
//! | 404, 405 | another path, another method |
//! | 408 | the upload was too slow |
//! | 413 | the file is larger than `max_upload_bytes` |
//! | 415 | the body has a content encoding |
//! | 503 | temporarily refused; `Retry-After` gives the delay |
//! | 507 | `directory` has reached `max_bytes` |
//!
//! Files are stored in the layout of GDB and distributions, `.build-id/ab/cdef.debug`, so the
//! directory can be one of the processor's `directories`, in this process or another. A new file
//! replaces an existing one.

mod config;
mod handler;
#[cfg(test)]
mod tests;
mod uploads;

pub use self::config::Config;

use std::sync::Arc;

use self::handler::Put;
use self::uploads::Uploads;
use crate::component::auth;
use crate::component::{
    BuildContext, BuildError, Entry, Extension, ExtensionConfig, Origin, Services,
};
use crate::entry;
use crate::metric::{self, Metric, shared};
use crate::serving::Serving;
use tributary_net::Owner;
use tributary_net::server::{BoundServer, Protocol, ServerOptions, tls_source};
use tributary_symbols::worker::{Compiler, Worker};

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExtensionConfig> = entry!(
    dyn ExtensionConfig,
    Config,
    "symbol_upload",
    aliases: &[],
    "Accepts binaries with debug information for the processor `symbolication`.",
    &[],
    collector: Origin::Own,
    metrics: &[shared::SERVER, shared::TLS, METRICS]
);

const METRICS: &[Metric] = &[metric::counter(
    "tributary_extension_symbol_uploads",
    "Number of uploads of symbol files, by outcome",
)];

impl ExtensionConfig for Config {
    fn build(&self, cx: &BuildContext) -> Result<Extension, BuildError> {
        let worker = Worker::new(self.worker_limits());
        let bound = self.bind(cx, Arc::new(worker))?;
        Ok(Extension {
            component: Box::new(Serving::new(bound)),
            services: Services::default(),
        })
    }
}

impl Config {
    fn bind(
        &self,
        cx: &BuildContext,
        reader: Arc<dyn Compiler>,
    ) -> Result<BoundServer<Put>, BuildError> {
        let failed = |error: &dyn std::fmt::Display| BuildError(error.to_string());
        let owner = Owner::new(&cx.id, "extension").with_transport("http");
        let uploads = Uploads::open(&self.directory, self.max_bytes.0, reader).map_err(|error| {
            let place = self.directory.display();
            BuildError(format!(
                "directory: cannot use {place}: {error}; this user must be able to write to the directory"
            ))
        })?;
        let guard = auth::guard(self.auth.as_ref(), cx, &owner)?;
        let handler = Put::new(self, &cx.id, guard, uploads);
        let options = ServerOptions {
            protocol: Protocol::Either,
            tls: tls_source(&self.tls, Protocol::Either, &owner).map_err(|error| failed(&error))?,
            limits: self.limits.clone(),
            budget: Some(cx.budget.clone()),
            ..ServerOptions::default()
        };
        cx.listeners
            .bind(&cx.id, &self.endpoint)
            .and_then(|listener| BoundServer::new(listener, handler, options, "HTTP", owner))
            .map_err(|error| failed(&error))
    }
}
