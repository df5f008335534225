//! Receives what clients send to Jaeger's agent: one message in each UDP packet.
//!
//! UDP has no responses, so a packet that cannot be accepted is dropped and its spans are counted as refused. A task
//! reads each socket, so that the system's buffer stays empty. Packets wait in a queue for the workers; the queue is
//! bounded by `queue_size`, and its bytes are in the memory budget.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{BoxFuture, join_all};
use metrics::{Counter, counter};
use tokio::sync::{Mutex, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout_at};
use tokio_util::sync::CancellationToken;

use super::config::AgentSettings;
use crate::pipeline::batch::Code;
use crate::pipeline::{Component, Undelivered};
use crate::receivers::otlp::intake::{Format, Intake};
use crate::serving::body::{OUT_OF_MEMORY, ReceivedBytes, out_of_memory, too_large};
use tributary_net::Owner;
use tributary_net::listeners::Sockets;
use tributary_net::server::DatagramPeers;
use tributary_otlp::Signal;
use tributary_span_formats::SpanFormat;
use tributary_span_formats::jaeger::agent_spans;

/// The agent's server for one protocol.
pub(super) struct Agent {
    shared: Arc<Shared>,
    /// Kept so that the successor in a reload finds the sockets.
    sockets: Arc<Sockets<UdpSocket>>,
    settings: AgentSettings,
    packets: Arc<Mutex<mpsc::Receiver<Packet>>>,
    queue: Option<mpsc::Sender<Packet>>,
    readers: Vec<JoinHandle<()>>,
    workers: Vec<JoinHandle<()>>,
    stop: CancellationToken,
}

struct Shared {
    intake: Intake,
    format: SpanFormat,
    peers: DatagramPeers,
    dropped: Dropped,
}

/// A packet that waits for a worker.
struct Packet {
    body: ReceivedBytes,
    from: SocketAddr,
}

/// Counters of dropped packets by reason.
struct Dropped {
    queue_full: Counter,
    memory: Counter,
    too_large: Counter,
    malformed: Counter,
    refused: Counter,
    shutdown: Counter,
}

impl Agent {
    /// Creates a server that reads its sockets once it is started.
    ///
    /// # Errors
    /// The size of the receive buffer cannot be set.
    pub(super) fn new(
        sockets: Arc<Sockets<UdpSocket>>,
        intake: Intake,
        format: SpanFormat,
        transport: &'static str,
        settings: AgentSettings,
    ) -> io::Result<Self> {
        if settings.socket_buffer_size > 0 {
            for socket in sockets.iter() {
                let size = settings.socket_buffer_size;
                rustix::net::sockopt::set_socket_recv_buffer_size(socket, size)?;
            }
        }
        let dropped = |reason: &'static str| {
            counter!(
                "tributary_receiver_dropped_packets",
                "receiver" => intake.id.to_string(),
                "transport" => transport,
                "reason" => reason
            )
        };
        let (queue, packets) = mpsc::channel(settings.queue_size);
        let owner = Owner::new(&intake.id, "receiver").with_transport("udp");
        Ok(Agent {
            shared: Arc::new(Shared {
                format,
                peers: DatagramPeers::new(owner),
                dropped: Dropped {
                    queue_full: dropped("queue_full"),
                    memory: dropped("memory"),
                    too_large: dropped("too_large"),
                    malformed: dropped("malformed"),
                    refused: dropped("refused"),
                    shutdown: dropped("shutdown"),
                },
                intake,
            }),
            sockets,
            settings,
            packets: Arc::new(Mutex::new(packets)),
            queue: Some(queue),
            readers: Vec::new(),
            workers: Vec::new(),
            stop: CancellationToken::new(),
        })
    }

    fn open(&mut self) -> io::Result<()> {
        let Some(queue) = self.queue.take() else {
            return Ok(());
        };
        for socket in self.sockets.iter() {
            let socket = tokio::net::UdpSocket::from_std(socket.try_clone()?)?;
            tracing::info!(
                otelcol.component.id = %self.shared.intake.id,
                otelcol.component.kind = "receiver",
                endpoint = %socket.local_addr()?,
                protocol = ?self.shared.format,
                "Starting UDP server"
            );
            let reading = read(
                socket,
                self.shared.clone(),
                queue.clone(),
                self.settings.max_packet_size,
                self.stop.clone(),
            );
            self.readers.push(tokio::spawn(reading));
        }
        for _ in 0..self.settings.workers {
            let working = work(self.shared.clone(), self.packets.clone());
            self.workers.push(tokio::spawn(working));
        }
        Ok(())
    }
}

impl Component for Agent {
    fn start(&mut self) {
        if let Err(error) = self.open() {
            tracing::error!(
                otelcol.component.id = %self.shared.intake.id,
                otelcol.component.kind = "receiver",
                error = %error,
                "Cannot receive from the UDP socket; restart the collector, or raise its limit of open files"
            );
        }
    }

    /// Stops reading, and processes the packets in the queue. Packets that are left at the deadline are dropped.
    fn shutdown(mut self: Box<Self>, deadline: Instant) -> BoxFuture<'static, Undelivered> {
        Box::pin(async move {
            self.stop.cancel();
            // The readers own the senders, and the queue closes with the last of them.
            self.queue = None;
            join_all(self.readers).await;
            let aborts: Vec<_> = self.workers.iter().map(JoinHandle::abort_handle).collect();
            if timeout_at(deadline, join_all(self.workers)).await.is_err() {
                aborts.iter().for_each(tokio::task::AbortHandle::abort);
                let mut packets = self.packets.lock().await;
                while let Ok(packet) = packets.try_recv() {
                    self.shared
                        .drop_packet(&self.shared.dropped.shutdown, &packet.body.bytes);
                }
            }
            Undelivered::default()
        })
    }
}

/// Reads packets into the queue.
async fn read(
    socket: tokio::net::UdpSocket,
    shared: Arc<Shared>,
    queue: mpsc::Sender<Packet>,
    max: usize,
    stop: CancellationToken,
) {
    // One byte more tells that a packet was cut.
    let mut buffer = vec![0; max + 1];
    loop {
        let received = tokio::select! {
            () = stop.cancelled() => return,
            received = socket.recv_from(&mut buffer) => received,
        };
        match received {
            Ok((length, from)) => {
                let packet = buffer.get(..length).unwrap_or_default();
                shared.enqueue(packet, from, max, &queue);
            }
            Err(error) => {
                tracing::debug!(error = %error, "Cannot read a UDP packet");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Processes packets of the queue.
async fn work(shared: Arc<Shared>, packets: Arc<Mutex<mpsc::Receiver<Packet>>>) {
    loop {
        let next = packets.lock().await.recv().await;
        match next {
            Some(packet) => shared.process(packet).await,
            None => return,
        }
    }
}

impl Shared {
    fn enqueue(&self, packet: &[u8], from: SocketAddr, max: usize, queue: &mpsc::Sender<Packet>) {
        let intake = &self.intake;
        if packet.len() > max {
            let nack = too_large(max, intake.limit_key);
            intake.unreadable(Signal::Traces, &nack);
            intake.refused(&nack, &self.peers.peer(from));
            self.drop_packet(&self.dropped.too_large, packet);
            return;
        }
        let Ok(place) = queue.try_reserve() else {
            self.drop_packet(&self.dropped.queue_full, packet);
            return;
        };
        match intake.budget.acquire(packet.len()) {
            Ok(permit) => place.send(Packet {
                body: ReceivedBytes {
                    bytes: Bytes::copy_from_slice(packet),
                    permit,
                },
                from,
            }),
            Err(no_room) => {
                intake.unreadable(Signal::Traces, &out_of_memory(no_room));
                self.drop_without_room(self.spans(packet));
            }
        }
    }

    async fn process(&self, packet: Packet) {
        let intake = &self.intake;
        let peer = self.peers.peer(packet.from);
        let format = Format::Spans(self.format, false);
        let spans = self.spans(&packet.body.bytes);
        let taken = intake.take(Signal::Traces, format, None, packet.body, None, &peer);
        if let Err(nack) = taken.await {
            intake.refused(&nack, &peer);
            match nack.code {
                _ if nack.reason == OUT_OF_MEMORY => self.drop_without_room(spans),
                Code::InvalidArgument => self.dropped.malformed.increment(1),
                _ => self.dropped.refused.increment(1),
            }
        }
    }

    /// Returns the number of spans in a packet.
    fn spans(&self, packet: &[u8]) -> usize {
        agent_spans(packet, self.format == SpanFormat::JaegerAgentCompact)
    }

    /// Counts a packet that the memory budget has no room for. The intake has counted one of its spans.
    fn drop_without_room(&self, spans: usize) {
        let more = spans.saturating_sub(1);
        self.intake.metrics.refused(Signal::Traces, more);
        self.dropped.memory.increment(1);
    }

    /// Counts a packet that is dropped without being decoded.
    fn drop_packet(&self, reason: &Counter, packet: &[u8]) {
        self.intake
            .metrics
            .refused(Signal::Traces, self.spans(packet));
        reason.increment(1);
    }
}

/// Pause after an error of the socket, so that a lasting error does not use up a processor.
const PAUSE: Duration = Duration::from_millis(10);
