//! What authenticators share: credentials in files that are renewed, and credentials in headers.

use std::path::{Path, PathBuf};

use http::header::{HeaderMap, HeaderName};
use metrics::{Counter, counter};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{error, info};

use crate::auth::Refused;
use crate::config::ComponentId;
use crate::files::FileWatch;
use crate::pipeline::{BoxFuture, Component, Undelivered};

/// More than this in a file of credentials is a mistake: ten thousand users with the longest hashes fit.
const LARGEST_FILE: u64 = 4 << 20;

/// The text of a file.
///
/// # Errors
/// A sentence that names the file and the reason, and nothing of the content.
pub(super) fn read(path: &Path) -> Result<String, String> {
    let shown = path.display();
    let metadata = std::fs::metadata(path)
        .map_err(|error| format!("cannot read the file {shown}: {error}"))?;
    if metadata.is_dir() {
        return Err(format!("{shown} is a directory, not a file"));
    }
    if metadata.len() > LARGEST_FILE {
        return Err(format!("{shown} has more than {LARGEST_FILE} bytes"));
    }
    let bytes =
        std::fs::read(path).map_err(|error| format!("cannot read the file {shown}: {error}"))?;
    String::from_utf8(bytes).map_err(|_| format!("{shown} is not text in UTF-8"))
}

/// What follows the scheme in the one header of that name; the whole value when the scheme is empty.
///
/// # Errors
/// When there is no such header, more than one, or one of another scheme.
pub(super) fn of_scheme<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
    scheme: &str,
) -> Result<&'a [u8], Refused> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(Refused::Missing)?.as_bytes();
    if values.next().is_some() {
        return Err(Refused::Malformed);
    }
    if scheme.is_empty() {
        return Ok(value);
    }
    // RFC 9110, 11.1 and 11.4: the scheme in any case, then spaces.
    let (found, rest) = value
        .split_at_checked(scheme.len())
        .ok_or(Refused::Malformed)?;
    let credentials = rest.trim_ascii_start();
    let well_formed = found.eq_ignore_ascii_case(scheme.as_bytes())
        && rest.first() == Some(&b' ')
        && !credentials.is_empty();
    match well_formed {
        true => Ok(credentials),
        false => Err(Refused::Malformed),
    }
}

/// The life of an authenticator whose credentials come from files.
pub(super) struct Reloading {
    id: ComponentId,
    watch: Option<FileWatch>,
    done: Counter,
    failed: Counter,
}

impl Reloading {
    /// Watches the files from now on.
    pub(super) fn new(id: &ComponentId, files: impl IntoIterator<Item = PathBuf>) -> Self {
        let files: Vec<PathBuf> = files.into_iter().collect();
        let result = |result: &'static str| {
            counter!(
                "tributary_auth_reloads",
                "extension" => id.to_string(),
                "result" => result
            )
        };
        Reloading {
            id: id.clone(),
            done: result("success"),
            failed: result("failure"),
            watch: (!files.is_empty()).then(|| FileWatch::new(files)),
        }
    }

    /// A component that calls `reload` whenever a file has changed. `reload` takes over what is there now and says
    /// whether that is anything new; when it fails, what was there before must still count.
    pub(super) fn component<F>(self, reload: F) -> Box<dyn Component>
    where
        F: FnMut() -> Result<bool, String> + Send + 'static,
    {
        Box::new(Running {
            waiting: Some((self, reload)),
            task: None,
        })
    }

    /// Reading happens on this task: files of credentials are small.
    async fn run(mut self, mut reload: impl FnMut() -> Result<bool, String>) {
        let Some(mut watch) = self.watch.take() else {
            return;
        };
        loop {
            watch.changed().await;
            match reload() {
                Ok(false) => {}
                Ok(true) => {
                    self.done.increment(1);
                    info!(
                        otelcol.component.id = %self.id,
                        otelcol.component.kind = "extension",
                        "Credentials have changed and were read again."
                    );
                }
                Err(reason) => {
                    self.failed.increment(1);
                    error!(
                        otelcol.component.id = %self.id,
                        otelcol.component.kind = "extension",
                        error = reason,
                        "Cannot take over changed credentials. Those from before still count."
                    );
                }
            }
        }
    }
}

struct Running<F> {
    waiting: Option<(Reloading, F)>,
    task: Option<JoinHandle<()>>,
}

impl<F> Component for Running<F>
where
    F: FnMut() -> Result<bool, String> + Send + 'static,
{
    fn start(&mut self) {
        if let Some((reloading, reload)) = self.waiting.take() {
            self.task = Some(tokio::spawn(reloading.run(reload)));
        }
    }

    fn shutdown(self: Box<Self>, _: Instant) -> BoxFuture<'static, Undelivered> {
        if let Some(task) = &self.task {
            task.abort();
        }
        Box::pin(async { Undelivered::default() })
    }
}
