//! Well-behaved clients during an attack: small requests, one after the other, each repeated until it is accepted.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::raw;
use super::target::{Answer, Channel, PROTOBUF, Side, Target, good};

/// Requests of good clients during an attack.
#[derive(Debug, Default, Clone, Copy)]
pub struct Service {
    pub accepted: u64,
    pub refused: u64,
    /// Longest time until a request was accepted, all its attempts included.
    pub longest: Duration,
    /// Longest time until a response, which may be a refusal because the memory is full.
    pub longest_to_answer: Duration,
}

impl Service {
    fn and(self, other: Service) -> Service {
        Service {
            accepted: self.accepted + other.accepted,
            refused: self.refused + other.refused,
            longest: self.longest.max(other.longest),
            longest_to_answer: self.longest_to_answer.max(other.longest_to_answer),
        }
    }
}

/// Pause between two attempts of a client.
const PAUSE: Duration = Duration::from_millis(20);
/// Longest wait of a client that is never served. The figure of the outcome is not larger.
const GIVE_UP: Duration = Duration::from_secs(30);

/// Sends until the attack ends: on an existing connection, and on a new connection for each request.
pub async fn observe(target: Arc<Target>, over: CancellationToken) -> Service {
    let (known, new, http) = tokio::join!(
        client(&target, &over, Kind::Known),
        client(&target, &over, Kind::New),
        client(&target, &over, Kind::Http),
    );
    known.and(new).and(http)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// gRPC on one connection until it closes.
    Known,
    /// gRPC on a new connection for each request.
    New,
    /// HTTP/1 on a new connection for each request.
    Http,
}

async fn client(target: &Target, over: &CancellationToken, kind: Kind) -> Service {
    let mut service = Service::default();
    let is_there = match kind {
        Kind::Known | Kind::New => target.options.grpc.is_some(),
        Kind::Http => target.options.http.is_some(),
    };
    let mut channel = None;
    while is_there && (service.accepted == 0 || !over.is_cancelled()) {
        let began = Instant::now();
        let mut unanswered = began;
        loop {
            let attempt = timeout(GIVE_UP, attempt(target, kind, &mut channel)).await;
            let answer = attempt.ok().and_then(Result::ok);
            if let Some(answer) = &answer
                && (answer.is_accepted() || answer.asks_to_retry())
            {
                service.longest_to_answer = service.longest_to_answer.max(unanswered.elapsed());
                unanswered = Instant::now();
            }
            if answer.is_some_and(|answer| answer.is_accepted()) {
                service.accepted += 1;
                break;
            }
            service.refused += 1;
            if began.elapsed() >= GIVE_UP {
                service.longest = GIVE_UP;
                service.longest_to_answer = service.longest_to_answer.max(unanswered.elapsed());
                return service;
            }
            sleep(PAUSE).await;
        }
        service.longest = service.longest.max(began.elapsed());
        sleep(PAUSE).await;
    }
    service
}

async fn attempt(
    target: &Target,
    kind: Kind,
    known: &mut Option<Channel>,
) -> Result<Answer, String> {
    let signal = *target.signals.first().ok_or("no signal")?;
    let message = good(signal);
    if kind == Kind::Http {
        let address = target.options.http.ok_or("no address")?;
        let path = raw::path(signal);
        return target
            .post(address, path, PROTOBUF, message, Side::Good)
            .await;
    }
    let address = target.options.grpc.ok_or("no address")?;
    let mut channel = match known.take() {
        Some(channel) => channel,
        None => target.channel(address, Side::Good).await?,
    };
    let frame = raw::frame(false, &message).into();
    let answer = channel.call(address, signal, "identity", frame).await?;
    if kind == Kind::Known {
        *known = Some(channel);
    }
    Ok(answer)
}
