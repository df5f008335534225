//! The end of a connection: by idleness, age, shutdown, or a certificate that is no longer good.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::Duration;

use hyper_util::server::graceful::GracefulConnection;
use tokio::time::{Instant, Sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::connection::Failure;
use super::{Options, Peer};
use futures_util::future::BoxFuture;

/// Completes when the client is no longer trusted.
pub(super) type Distrust = BoxFuture<'static, ()>;

/// Runs the connection, and begins its end when the time has come.
pub(super) async fn drive<C>(
    connection: C,
    peer: &Peer,
    options: &Options,
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
    // On shutdown the server's deadline counts, otherwise the connection's own. An idle client that is gone would
    // never confirm the end, and one that is not trusted must not delay it, so there the default is not to wait for
    // ever.
    let grace = match reason {
        End::Shutdown => None,
        End::Age => options.grace,
        End::Vacated => Some(VACATED_GRACE),
        End::Idle => Some(options.grace.unwrap_or(IDLE_GRACE)),
        End::Distrust => Some(
            options
                .grace
                .map_or(IDLE_GRACE, |grace| grace.min(IDLE_GRACE)),
        ),
    };
    let Some(grace) = grace else {
        peer.hurry();
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

/// Why a connection ends although the client did not close it.
enum End {
    Shutdown,
    Age,
    Idle,
    /// The client's certificate has expired, or would no longer be accepted.
    Distrust,
    /// There is no room for a newcomer, and this connection is idle.
    Vacated,
}

/// Completes when the connection should begin to end.
async fn ends(
    peer: &Peer,
    options: &Options,
    distrust: Option<Distrust>,
    stop: CancellationToken,
) -> End {
    // A tenth more or less, so that connections that began together do not end together.
    let jitter = 0.9 + 0.2 * fastrand::f64();
    let mut age = pin!(maybe(
        options
            .max_age
            .map(|age| peer.opened() + age.mul_f64(jitter))
    ));
    let mut idle = pin!(idle(peer, options.max_idle));
    let distrust = distrust.unwrap_or_else(|| Box::pin(std::future::pending()));
    tokio::select! {
        () = stop.cancelled() => match peer.is_vacated() {
            true => End::Vacated,
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

/// Completes when there was no request for a while from now on: the client does not mean to take leave. What it sent
/// before it heard of the end is long there, and others must not wait for it until the deadline.
async fn quiet(peer: &Peer) {
    let began = Instant::now();
    loop {
        let due = peer.idle_since().max(began) + QUIET;
        if due <= Instant::now() {
            return;
        }
        sleep_until(due).await;
    }
}

/// Waits until `when`, or for ever.
fn maybe(when: Option<Instant>) -> impl Future<Output = ()> {
    let sleep: Option<Pin<Box<Sleep>>> = when.map(|when| Box::pin(sleep_until(when)));
    async move {
        match sleep {
            Some(sleep) => sleep.await,
            None => std::future::pending().await,
        }
    }
}

/// How long a connection may have no request before it is cut at shutdown.
const QUIET: Duration = Duration::from_secs(5);
/// How long a connection may take to close that was idle when a newcomer needed its place.
const VACATED_GRACE: Duration = Duration::from_secs(1);
/// How long an idle connection may take to close.
const IDLE_GRACE: Duration = Duration::from_secs(20);
