//! One rendering of a page for all waiting requests.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::Mutex;
use tokio::task::{spawn, spawn_blocking};
use tokio::time::sleep;

/// A page that is expensive to render. Concurrent requests share a rendering, one rendering runs at a time, and
/// renderings take at most a quarter of one processor: a flood of requests must not delay other clients.
#[derive(Debug, Default)]
pub struct SharedPage {
    last: Arc<Mutex<Option<Rendering>>>,
}

#[derive(Debug)]
struct Rendering {
    began: Instant,
    took: Duration,
    page: Bytes,
}

/// Pause after a rendering, in durations of the rendering.
const PAUSE_FACTOR: u32 = 3;

impl SharedPage {
    /// Returns the page as rendered after this call, or `None` if the process is shutting down.
    pub async fn get(&self, render: impl FnOnce() -> Bytes + Send + 'static) -> Option<Bytes> {
        let asked = Instant::now();
        let mut last = self.last.clone().lock_owned().await;
        // The rendering began while this request waited for the previous rendering.
        if let Some(last) = last.as_ref().filter(|last| last.began > asked) {
            return Some(last.page.clone());
        }
        // A separate task: a client that disconnects must not start another rendering at once.
        let rendering = spawn(async move {
            if let Some(last) = &*last {
                let next = last.took * (PAUSE_FACTOR + 1);
                sleep(next.saturating_sub(last.began.elapsed())).await;
            }
            let began = Instant::now();
            let page = spawn_blocking(render).await.ok()?;
            *last = Some(Rendering {
                began,
                took: began.elapsed(),
                page: page.clone(),
            });
            Some(page)
        });
        rendering.await.ok()?
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn waiting_requests_share_the_next_rendering() {
        let (page, renderings) = (SharedPage::default(), Arc::new(AtomicUsize::new(0)));
        let (release, held) = std::sync::mpsc::channel::<()>();
        let count = renderings.clone();
        let first = page.get(move || {
            count.fetch_add(1, Relaxed);
            let _ = held.recv();
            Bytes::from_static(b"first")
        });
        let others = async {
            while renderings.load(Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            let others = (0..100).map(|_| {
                let count = renderings.clone();
                page.get(move || Bytes::from(format!("{}", count.fetch_add(1, Relaxed))))
            });
            let others = join_all(others);
            let (others, _) = tokio::join!(others, async { release.send(()) });
            others
        };
        let (first, others) = tokio::join!(first, others);
        assert_eq!(first.unwrap(), "first");
        // The rendering began after these requests arrived.
        assert!(others.iter().flatten().all(|page| page == "1"));
        assert_eq!(others.iter().flatten().count(), 100);
        assert_eq!(renderings.load(Relaxed), 2);
    }

    #[tokio::test]
    async fn next_request_gets_a_new_rendering() {
        let page = SharedPage::default();
        for expected in ["one", "two"] {
            let got = page.get(|| Bytes::from_static(expected.as_bytes())).await;
            assert_eq!(got.unwrap(), expected);
        }
    }
}
