//! Credentials in files that are renewed, and credentials in headers, for all authenticators.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Duration;

use http::header::{HeaderMap, HeaderName};
use metrics::{Counter, counter};
use parking_lot::Mutex;
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::Instant;
use tracing::{error, info};

use crate::pipeline::{Component, Undelivered};
use futures_util::future::BoxFuture;
use tributary_config::ComponentId;
use tributary_net::auth::AuthFailure;
use tributary_net::files::{FileWatch, read_regular};

/// Maximum size of a credentials file in bytes: ten thousand users with the longest hashes fit.
const LARGEST_FILE: u64 = 4 << 20;

/// Headers that requests need for other purposes.
const TAKEN: [&str; 8] = [
    "connection",
    "content-encoding",
    "content-length",
    "content-type",
    "host",
    "te",
    "transfer-encoding",
    "user-agent",
];

/// Returns the name of a header that an authenticator may set.
///
/// # Errors
/// Returns the reason why the text is no such name.
pub(super) fn header_name(name: &str) -> Result<HeaderName, String> {
    let header: HeaderName = name
        .parse()
        .map_err(|_| format!("`{name}` is not a header name"))?;
    let text = header.as_str();
    match TAKEN.contains(&text) || text.starts_with("grpc-") {
        true => Err(format!(
            "the header `{name}` is reserved: use another header"
        )),
        false => Ok(header),
    }
}

/// Reads the text of a file.
///
/// # Errors
/// Returns a message that names the file and the reason, and contains none of the content.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let bytes = read_regular(path, LARGEST_FILE).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|_| format!("{shown} is not UTF-8"))
}

/// Returns the text after the scheme in the single header of this name, or the whole value if the
/// scheme is empty.
///
/// # Errors
/// Returns an error if the header is missing, occurs more than once, or has another scheme.
pub(super) fn of_scheme<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    scheme: &str,
) -> Result<&'a [u8], AuthFailure> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(AuthFailure::Missing)?.as_bytes();
    if values.next().is_some() {
        return Err(AuthFailure::Malformed);
    }
    if scheme.is_empty() {
        return Ok(value);
    }
    // RFC 9110, 11.1 and 11.4: the scheme in any case, then spaces.
    let (found, rest) = value
        .split_at_checked(scheme.len())
        .ok_or(AuthFailure::Malformed)?;
    let credentials = rest.trim_ascii_start();
    let well_formed = found.eq_ignore_ascii_case(scheme.as_bytes())
        && rest.first() == Some(&b' ')
        && !credentials.is_empty();
    match well_formed {
        true => Ok(credentials),
        false => Err(AuthFailure::Malformed),
    }
}

/// Loads the current content of the files, and returns whether it has changed. After an error, the
/// previous content must stay valid.
type Load = Box<dyn Fn() -> Result<bool, String> + Send + Sync>;

/// Reloads the credentials of an authenticator when their files change.
pub(super) struct Reloader {
    id: ComponentId,
    files: Vec<PathBuf>,
    load: Load,
    version: AtomicU64,
    /// Time of the last reload that a server's refusal caused.
    refreshed: Mutex<Option<Instant>>,
    done: Counter,
    failed: Counter,
}

impl Reloader {
    /// Creates the reloader of the authenticator `id`; `load` loads the files.
    pub(super) fn new<F>(id: &ComponentId, files: Vec<PathBuf>, load: F) -> Arc<Self>
    where
        F: Fn() -> Result<bool, String> + Send + Sync + 'static,
    {
        let reloads = |outcome: &'static str| {
            counter!(
                "tributary_auth_reloads",
                "extension" => id.to_string(),
                "outcome" => outcome
            )
        };
        Arc::new(Reloader {
            id: id.clone(),
            files,
            load: Box::new(load),
            version: AtomicU64::new(0),
            refreshed: Mutex::new(None),
            done: reloads("success"),
            failed: reloads("failure"),
        })
    }

    /// Returns how many times the credentials have changed.
    pub(super) fn version(&self) -> u64 {
        self.version.load(Acquire)
    }

    /// Reloads the files now, at most once a second.
    pub(super) fn refresh(&self) {
        let mut last = self.refreshed.lock();
        if !self.files.is_empty() && last.is_none_or(|last| last.elapsed() >= REFRESH_EVERY) {
            *last = Some(Instant::now());
            self.reload();
        }
    }

    /// Returns a component that reloads the files whenever `watch` detects a change.
    pub(super) fn component(self: &Arc<Self>, watch: FileWatch) -> Box<dyn Component> {
        Box::new(Running {
            waiting: Some((self.clone(), watch)),
            task: None,
        })
    }

    /// Starts to watch the files. Call it before the files are read, so that no change is missed.
    pub(super) fn watch(files: &[PathBuf]) -> FileWatch {
        FileWatch::new(files.iter().cloned())
    }

    /// Credentials files are small, so they are read synchronously.
    fn reload(&self) {
        match (self.load)() {
            Ok(false) => {}
            Ok(true) => {
                self.version.fetch_add(1, Release);
                self.done.increment(1);
                info!(
                    otelcol.component.id = %self.id,
                    otelcol.component.kind = "extension",
                    "Loaded the changed credentials file."
                );
            }
            Err(reason) => {
                self.failed.increment(1);
                error!(
                    otelcol.component.id = %self.id,
                    otelcol.component.kind = "extension",
                    error = reason,
                    "Cannot load the changed credentials file; still using the previous credentials."
                );
            }
        }
    }
}

struct Running {
    waiting: Option<(Arc<Reloader>, FileWatch)>,
    task: Option<JoinHandle<()>>,
}

impl Component for Running {
    fn start(&mut self) {
        if let Some((reloader, mut watch)) = self.waiting.take() {
            self.task = Some(tokio::spawn(async move {
                loop {
                    watch.changed().await;
                    let reloader = reloader.clone();
                    let reloaded = spawn_blocking(move || reloader.reload()).await;
                    if reloaded.is_err() {
                        return;
                    }
                }
            }));
        }
    }

    fn shutdown(self: Box<Self>, _: Instant) -> BoxFuture<'static, Undelivered> {
        if let Some(task) = &self.task {
            task.abort();
        }
        Box::pin(async { Undelivered::default() })
    }
}

/// Minimum time between two reloads caused by refusals.
const REFRESH_EVERY: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endless_credentials_file_is_refused() {
        let error = read(Path::new("/dev/zero")).unwrap_err();
        assert_eq!(error, "/dev/zero is a device, not a regular file");
    }
}
