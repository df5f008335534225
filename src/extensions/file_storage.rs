//! Queues on disk: `file_storage`.

mod config;

pub use config::{CompactionConfig, Config, FsyncMode, StorageCompression};

use std::sync::Arc;

use tokio::time::Instant;

use crate::component::{
    BuildContext, BuildError, Entry, Extension, ExtensionConfig, Origin, Services,
};
use crate::entry;
use crate::metric::shared;
use crate::pipeline::{Component, Undelivered};
use crate::telemetry::disk;
use crate::telemetry::disk::Watched;
use futures_util::future::BoxFuture;
use tributary_config::Capability;
use tributary_storage::{Storage, has_dead_letters, inspect, own_files, unused};

/// Entry of the component registry.
pub const ENTRY: Entry<dyn ExtensionConfig> = entry!(
    dyn ExtensionConfig,
    Config,
    "file_storage",
    aliases: &[],
    "Stores the sending queues of exporters in a directory.",
    &[],
    collector: Origin::Contrib,
    metrics: &[shared::DISK]
);

impl ExtensionConfig for Config {
    fn provides(&self) -> Vec<Capability> {
        vec![Capability::Storage]
    }

    fn build(&self, _: &BuildContext) -> Result<Extension, BuildError> {
        let directory = &self.directory;
        if self.create_directory && !directory.is_dir() {
            let mode = self.directory_mode().unwrap_or(0o750);
            own_files::create_directories(directory, mode).map_err(|error| {
                BuildError(format!(
                    "cannot create the directory {}: {error}",
                    directory.display()
                ))
            })?;
        }
        let storage = Arc::new(Storage {
            directory: directory.clone(),
            options: self.options(),
        });
        Ok(Extension {
            component: Box::new(Watch {
                storage: storage.clone(),
                _disk: disk::watch(directory.clone()),
            }),
            services: Services {
                storage: Some(storage),
                ..Services::default()
            },
        })
    }
}

/// Logs unused queues at the start.
struct Watch {
    storage: Arc<Storage>,
    _disk: Watched,
}

impl Component for Watch {
    fn start(&mut self) {
        // Exporters have opened their queues, because they are built before any component starts. Reading the other
        // queues takes as long as the disk needs.
        let storage = self.storage.clone();
        tokio::task::spawn_blocking(move || report_unused(&storage));
    }

    fn shutdown(self: Box<Self>, _: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async { Undelivered::default() })
    }
}

fn report_unused(storage: &Storage) {
    let queues = match unused(&storage.directory) {
        Ok(queues) => queues,
        Err(error) => {
            let directory = storage.directory.display();
            tracing::error!(%directory, %error, "Cannot list the directory of queues on disk.");
            return;
        }
    };
    for (name, path) in queues {
        let (contents, directory) = (inspect(&path), path.clone());
        let path = path.display();
        match contents {
            Ok(contents) if contents.found.records == 0 => {}
            Ok(contents) if has_dead_letters(&directory) => tracing::warn!(
                otelcol.component.id = %name.exporter,
                otelcol.component.kind = "exporter",
                otelcol.signal = %name.signal,
                directory = %path,
                records = contents.found.records,
                items = contents.found.items,
                "This queue has dead letters: records that failed repeatedly while other records were delivered. To \
                 send them, run `collector queue drain {path} --endpoint URL`."
            ),
            Ok(contents) => tracing::warn!(
                otelcol.component.id = %name.exporter,
                otelcol.component.kind = "exporter",
                otelcol.signal = %name.signal,
                directory = %path,
                records = contents.found.records,
                items = contents.found.items,
                bytes = contents.found.bytes,
                "This queue on disk has a backlog, but no exporter uses it. To send the backlog, configure an \
                 exporter with the same id, or run `collector queue drain {path} --endpoint URL`."
            ),
            Err(error) => {
                tracing::error!(%error, "Cannot read a queue on disk that no exporter uses.")
            }
        }
    }
}
