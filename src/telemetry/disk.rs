//! The free space of the file systems that components write to.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use parking_lot::Mutex;

use metrics::gauge;

/// Number of components that write to each directory.
static WATCHED: LazyLock<Mutex<BTreeMap<PathBuf, usize>>> = LazyLock::new(Mutex::default);

/// Shows the free space of the file system of a directory until it is dropped.
#[derive(Debug)]
pub(crate) struct Watched(PathBuf);

/// Shows the free space of the file system of `directory`.
pub(crate) fn watch(directory: PathBuf) -> Watched {
    let mut watched = WATCHED.lock();
    *watched.entry(directory.clone()).or_default() += 1;
    Watched(directory)
}

impl Drop for Watched {
    fn drop(&mut self) {
        let mut watched = WATCHED.lock();
        let Some(count) = watched.get_mut(&self.0) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            watched.remove(&self.0);
            // The recorder cannot remove a gauge, but a gauge with the value NaN is not exposed.
            set(&self.0, f64::NAN, f64::NAN);
        }
    }
}

/// Queries all file systems. A network file system may block, so this must not run on threads that serve sockets.
pub(super) fn measure() {
    let directories: Vec<PathBuf> = {
        let watched = WATCHED.lock();
        watched.keys().cloned().collect()
    };
    for directory in directories {
        let Ok(found) = rustix::fs::statvfs(&directory) else {
            set(&directory, f64::NAN, f64::NAN);
            continue;
        };
        let bytes = |blocks: u64| blocks as f64 * found.f_frsize as f64;
        // Space reserved for root is not free.
        set(&directory, bytes(found.f_bavail), bytes(found.f_blocks));
    }
}

fn set(directory: &Path, free: f64, size: f64) {
    let labels = [("directory", directory.display().to_string())];
    gauge!("tributary_disk_free_bytes", &labels).set(free);
    gauge!("tributary_disk_size_bytes", &labels).set(size);
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;

    #[test]
    fn free_space_is_shown_until_watch_is_dropped() {
        let directory = tempfile::TempDir::new().unwrap();
        let name = format!("{{directory=\"{}\"}}", directory.path().display());
        let recorder = PrometheusBuilder::new().build_recorder();
        metrics::with_local_recorder(&recorder, || {
            let value = |metric: &str| -> f64 {
                let page = recorder.handle().render();
                let line = format!("{metric}{name} ");
                let value = page.lines().find_map(|found| found.strip_prefix(&line));
                value.unwrap().parse().unwrap()
            };
            let watched = watch(directory.path().to_owned());
            measure();
            let (free, size) = (
                value("tributary_disk_free_bytes"),
                value("tributary_disk_size_bytes"),
            );
            assert!(0.0 < free && free <= size, "{free} of {size}");
            drop(watched);
            assert!(value("tributary_disk_free_bytes").is_nan());
        });
    }
}
