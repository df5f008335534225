//! End of a connection: by idleness, age, shutdown, or a certificate that is no longer valid.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::{Peer, ServerOptions};
use futures_util::future::BoxFuture;

/// Completes when the client certificate is no longer trusted.
pub(super) type Distrust = BoxFuture<'static, ()>;

/// Runs the connection, and starts its graceful end when it is due.
pub(super) async fn drive<C>(
    connection: C,
    peer: &Peer,
    options: &ServerOptions,
    distrust: Option<Distrust>,
    stop: CancellationToken,
) -> Result<(), Failure>
where
    C: GracefulConnection<Error: Into<Box<dyn std::error::Error + Send + Sync>>>,
{
    let failed = |error: C::Error| Failure::Http(error.into());
    let mut connection = pin!(connection);
    let mut due = pin!(ends(peer, options, distrust, stop.clone()));
    let reason = tokio::select! {
        biased;
        ended = connection.as_mut() => return ended.map_err(failed),
        reason = due.as_mut() => reason,
    };
    connection.as_mut().graceful_shutdown();
    // On shutdown, the server's deadline applies; otherwise the grace of the connection. A vanished idle client would
    // never confirm the end, and an untrusted client must not delay the end. For both, the default grace is finite.
    let grace = match reason {
        End::Shutdown => None,
        End::Age => options.grace,
        End::Replaced => Some(REPLACED_GRACE),
        End::Idle => Some(options.grace.unwrap_or(IDLE_GRACE)),
        End::Distrust => Some(
            options
                .grace
                .map_or(IDLE_GRACE, |grace| grace.min(IDLE_GRACE)),
        ),
    };
    let Some(grace) = grace else {
        peer.begin_shutdown();
        let silence = async {
            stop.cancelled().await;
            quiet(peer).await;
        };
        return tokio::select! {
            biased;
            ended = connection => ended.map_err(failed),
            () = silence => Ok(()),
        };
    };
    let ended = timeout(grace, connection).await;
    ended.unwrap_or(Ok(())).map_err(failed)
}

enum End {
    Shutdown,
    Age,
    Idle,
    /// The client's certificate has expired, or is no longer accepted.
    Distrust,
    /// The connection is idle and makes room for a new connection.
    Replaced,
}

/// Completes when the connection should start to end.
async fn ends(
    peer: &Peer,
    options: &ServerOptions,
    distrust: Option<Distrust>,
    stop: CancellationToken,
) -> End {
    // Jitter of 10%, so that connections that began together do not end together.
    let jitter = 0.9 + 0.2 * fastrand::f64();
    let mut age = pin!(sleep_until_or_forever(
        options
            .max_age
            .map(|age| peer.opened() + age.mul_f64(jitter))
    ));
    let mut idle = pin!(idle(peer, options.max_idle));
    let distrust = distrust.unwrap_or_else(|| Box::pin(std::future::pending()));
    tokio::select! {
        () = stop.cancelled() => match peer.is_closing() {
            true => End::Replaced,
            false => End::Shutdown,
        },
        () = age.as_mut() => End::Age,
        () = idle.as_mut() => End::Idle,
        () = distrust => End::Distrust,
    }
}

async fn idle(peer: &Peer, limit: Option<Duration>) {
    let Some(limit) = limit else {
        return std::future::pending().await;
    };
    loop {
        let due = peer.idle_since() + limit;
        if due <= Instant::now() {
            return;
        }
        sleep_until(due).await;
    }
}

/// Completes after some time without a request: the client keeps the connection open without using
/// it. Its earlier requests have arrived, and shutdown must not wait for the client until the
/// deadline.
async fn quiet(peer: &Peer) {
    let began = Instant::now();
    loop {
        let due = peer.idle_since().max(began) + IDLE_TIME_AT_SHUTDOWN;
        if due <= Instant::now() {
            return;
        }
        sleep_until(due).await;
    }
}

fn sleep_until_or_forever(when: Option<Instant>) -> impl Future<Output = ()> {
    let sleep: Option<Pin<Box<Sleep>>> = when.map(|when| Box::pin(sleep_until(when)));
    async move {
        match sleep {
            Some(sleep) => sleep.await,
            None => std::future::pending().await,
        }
    }
}

/// Time without requests after which shutdown closes a connection.
const IDLE_TIME_AT_SHUTDOWN: Duration = Duration::from_secs(5);
/// Time for an idle connection to close when a new connection replaces it.
const REPLACED_GRACE: Duration = Duration::from_secs(1);
const IDLE_GRACE: Duration = Duration::from_secs(20);
