//! Takes binaries and debug information from those who build them, for the processor `symbolication`.
//!
//! `PUT /symbols/BUILD_ID` with the file as the body: its debug information, or a binary that has it inside.
//! `PUT /symbols/BUILD_ID/executable` takes a binary besides. `collector symbols upload` sends them.
//!
//! | answer | when |
//! |---|---|
//! | 201 | it is kept |
//! | 400 | the build id is none, or the file's is another one |
//! | 401 | the client may not send |
//! | 404, 405 | another path, another method |
//! | 408 | it came too slowly |
//! | 413 | it is larger than `max_upload_bytes` |
//! | 415 | it is encoded |
//! | 503 | not now: `Retry-After` says when |
//! | 507 | `directory` has `max_bytes` |
//!
//! Files are kept in the layout of GDB and distributions, `.build-id/ab/cdef.debug`, so the directory is one of the
//! processor's `directories`, of this process or another. A file replaces the one that was there.

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
use crate::component::{BuildContext, BuildError, Entry, Extension, ExtensionConfig, Services};
use crate::entry;
use crate::serving::Serving;
use tributary_net::Owner;
use tributary_net::server::{Bound, Options, Protocol, tls_source};
use tributary_symbols::worker::{Compiler, Worker};

/// The registry's entry.
pub const ENTRY: Entry<dyn ExtensionConfig> = entry!(
    dyn ExtensionConfig,
    Config,
    "symbol_upload",
    aliases: &[],
    "Takes binaries with debug information, for the processor symbolication.",
    &[]
);

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
    fn bind(&self, cx: &BuildContext, reader: Arc<dyn Compiler>) -> Result<Bound<Put>, BuildError> {
        let failed = |error: &dyn std::fmt::Display| BuildError(error.to_string());
        let owner = Owner::new(&cx.id, "extension").over("http");
        let uploads = Uploads::open(&self.directory, self.max_bytes.0, reader).map_err(|error| {
            let place = self.directory.display();
            BuildError(format!(
                "directory: {place} cannot be used: {error}; it must be a directory that this user may write to"
            ))
        })?;
        let guard = auth::guard(self.auth.as_ref(), cx, &owner)?;
        let handler = Put::new(self, &cx.id, guard, uploads);
        let options = Options {
            protocol: Protocol::Either,
            tls: tls_source(&self.tls, Protocol::Either, &owner).map_err(|error| failed(&error))?,
            limits: self.limits.clone(),
            budget: Some(cx.budget.clone()),
            ..Options::default()
        };
        cx.listeners
            .bind(&cx.id, &self.endpoint)
            .and_then(|listener| Bound::new(listener, handler, options, "HTTP", owner))
            .map_err(|error| failed(&error))
    }
}
