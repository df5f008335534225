//! Downloads into a temporary file of bounded size.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use tokio::fs::File;
use tokio::io::AsyncWriteExt as _;
use tokio::time::timeout;

use crate::cache::{Cache, TemporaryFile};
use crate::failure::Failure;
use crate::find::blocking;

/// Maximum time without data.
const MAX_TIME_WITHOUT_DATA: Duration = Duration::from_secs(30);

/// Writes a stream to a new temporary file.
///
/// # Errors
///
/// `TooLarge` as soon as the size exceeds `limit`, or at once if the server `declared` a larger size. `Unreachable`
/// if the stream ends early or no data arrives for half a minute. `Local` if the file cannot be written.
pub(super) async fn download(
    pieces: impl Stream<Item = Result<Bytes, String>>,
    declared: Option<u64>,
    limit: u64,
    cache: &Arc<Cache>,
) -> Result<TemporaryFile, Failure> {
    let too_large = |bytes| Failure::TooLarge(format!("{bytes} bytes exceed the limit of {limit}"));
    if let Some(declared) = declared.filter(|declared| *declared > limit) {
        return Err(too_large(declared));
    }
    let local = |error: std::io::Error| Failure::Local(format!("cannot write: {error}"));
    let cache = cache.clone();
    let begin = move || {
        let scratch = cache.scratch().map_err(local)?;
        let file = scratch.create().map_err(local)?;
        Ok((scratch, file))
    };
    let (scratch, file) = blocking(begin).await?;
    let mut file = File::from_std(file);
    let mut bytes = 0;
    let mut pieces = std::pin::pin!(pieces);
    loop {
        let piece = timeout(MAX_TIME_WITHOUT_DATA, pieces.next()).await;
        let silent = || format!("no data for {MAX_TIME_WITHOUT_DATA:?} after {bytes} bytes");
        let piece = match piece.map_err(|_| Failure::Unreachable(silent()))? {
            Some(piece) => piece.map_err(|reason| {
                Failure::Unreachable(format!("the download failed after {bytes} bytes: {reason}"))
            })?,
            None => break,
        };
        bytes += piece.len() as u64;
        if bytes > limit {
            return Err(too_large(bytes));
        }
        file.write_all(&piece).await.map_err(local)?;
    }
    file.flush().await.map_err(local)?;
    match declared {
        Some(declared) if declared != bytes => Err(Failure::Unreachable(format!(
            "received {bytes} of {declared} bytes"
        ))),
        _ => Ok(scratch),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::stream;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::library::testing::tools;

    /// A chunk after each of these waits, in seconds.
    fn slow(waits: Vec<u64>) -> impl Stream<Item = Result<Bytes, String>> {
        stream::iter(waits).then(|wait| async move {
            sleep(Duration::from_secs(wait)).await;
            Ok(Bytes::from_static(b"piece"))
        })
    }

    #[tokio::test(start_paused = true)]
    async fn slow_server_is_accepted_and_silent_server_is_not() {
        let (_directory, tools) = tools();
        let came = download(slow(vec![29; 10]), None, 50, &tools.cache).await;
        let came = came.unwrap();
        assert_eq!(std::fs::read(came.path()).unwrap(), b"piece".repeat(10));
        let began = Instant::now();
        let failed = download(slow(vec![1, 31]), None, 50, &tools.cache).await;
        let failed = failed.unwrap_err();
        assert!(
            matches!(&failed, Failure::Unreachable(reason) if reason.contains("after 5 bytes")),
            "{failed}"
        );
        assert_eq!(began.elapsed(), Duration::from_secs(31));
    }
}
