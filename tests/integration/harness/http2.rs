//! An HTTP/2 client that sends arbitrary bytes: frames and header blocks are built by hand (RFC
//! 9113, RFC 7541), because a library would refuse invalid ones.

use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

use super::within;

/// Connection preface of a client (RFC 9113, 3.4).
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

// Types of frames (RFC 9113, 6).
pub const DATA: u8 = 0;
pub const HEADERS: u8 = 1;
pub const PRIORITY: u8 = 2;
pub const RST_STREAM: u8 = 3;
pub const SETTINGS: u8 = 4;
pub const PUSH_PROMISE: u8 = 5;
pub const PING: u8 = 6;
pub const GOAWAY: u8 = 7;
pub const WINDOW_UPDATE: u8 = 8;
pub const CONTINUATION: u8 = 9;

// Flags.
pub const END_STREAM: u8 = 0x1;
pub const ACK: u8 = 0x1;
pub const END_HEADERS: u8 = 0x4;

// Error codes (RFC 9113, 7).
pub const PROTOCOL_ERROR: u32 = 1;
pub const FLOW_CONTROL_ERROR: u32 = 3;
pub const STREAM_CLOSED: u32 = 5;
pub const FRAME_SIZE_ERROR: u32 = 6;
pub const REFUSED_STREAM: u32 = 7;
pub const COMPRESSION_ERROR: u32 = 9;
pub const ENHANCE_YOUR_CALM: u32 = 11;

/// Encodes a frame.
pub fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap();
    let mut bytes = head(length, kind, flags, stream);
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns the nine-byte header of a frame with any payload.
pub fn head(length: u32, kind: u8, flags: u8, stream: u32) -> Vec<u8> {
    let mut bytes = length.to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes
}

/// A header field, literal and not indexed (RFC 7541, 6.2.2).
pub fn field(name: &str, value: &str) -> Vec<u8> {
    literal(0, name, value)
}

/// Encodes a header field that enters the dynamic table (RFC 7541, 6.2.1) at index 62.
pub fn indexed_field(name: &str, value: &str) -> Vec<u8> {
    literal(0x40, name, value)
}

fn literal(form: u8, name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![form];
    for text in [name, value] {
        integer(text.len(), &mut bytes);
        bytes.extend_from_slice(text.as_bytes());
    }
    bytes
}

/// An integer with a prefix of 7 bits (RFC 7541, 5.1).
fn integer(number: usize, bytes: &mut Vec<u8>) {
    let Some(mut rest) = number.checked_sub(127) else {
        bytes.push(number as u8);
        return;
    };
    bytes.push(127);
    while rest >= 128 {
        bytes.push((rest % 128) as u8 | 128);
        rest /= 128;
    }
    bytes.push(rest as u8);
}

/// The beginning of a connection: the preface, and SETTINGS with these parameters.
pub fn greeting(settings: &[u8]) -> Vec<u8> {
    [PREFACE, &frame(SETTINGS, 0, 0, settings)].concat()
}

/// The header block of a gRPC call.
pub fn call(path: &str) -> Vec<u8> {
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "collector"),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let fields = fields.map(|(name, value)| field(name, value));
    fields.concat()
}

/// The header block of a GET of this path.
pub fn get(path: &str) -> Vec<u8> {
    let fields = [
        (":method", "GET"),
        (":scheme", "http"),
        (":path", path),
        (":authority", "collector"),
    ];
    fields.map(|(name, value)| field(name, value)).concat()
}

/// A frame that the server sent.
#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    fn number_at(&self, at: usize) -> u32 {
        let bytes = self.payload.get(at..at + 4).unwrap();
        u32::from_be_bytes(bytes.try_into().unwrap())
    }
}

/// Frames received from the server.
#[derive(Debug, Default)]
pub struct ReceivedFrames {
    pub frames: Vec<Frame>,
    /// The connection is at its end.
    pub closed: bool,
}

impl ReceivedFrames {
    /// The error code with which the server ends the connection.
    pub fn goaway(&self) -> Option<u32> {
        // A graceful end first announces a later end.
        let last = self.frames.iter().rev().find(|f| f.kind == GOAWAY);
        last.map(|frame| frame.number_at(4))
    }

    /// The error code with which the server ended a stream.
    pub fn reset(&self, stream: u32) -> Option<u32> {
        let mut frames = self.frames.iter();
        let found = frames.find(|f| f.kind == RST_STREAM && f.stream == stream);
        found.map(|frame| frame.number_at(0))
    }

    /// Number of streams that the server ended with this error code.
    pub fn resets(&self, code: u32) -> usize {
        let of_code = |f: &&Frame| f.kind == RST_STREAM && f.number_at(0) == code;
        self.frames.iter().filter(of_code).count()
    }

    /// The HTTP status of the response on a stream, as h2 encodes the first such status on a connection.
    pub fn status(&self, stream: u32) -> Option<u16> {
        let mut frames = self.frames.iter();
        let answer = frames.find(|f| f.kind == HEADERS && f.stream == stream)?;
        Some(status(&answer.payload))
    }

    /// Number of streams with at least the beginning of a response.
    pub fn answers(&self) -> usize {
        let mut streams: Vec<u32> = self
            .frames
            .iter()
            .filter(|frame| frame.kind == HEADERS)
            .map(|frame| frame.stream)
            .collect();
        streams.dedup();
        streams.len()
    }

    /// Number of streams whose response is complete.
    pub fn ended_streams(&self) -> usize {
        let ends = |f: &&Frame| matches!(f.kind, DATA | HEADERS) && f.flags & END_STREAM != 0;
        self.frames.iter().filter(ends).count()
    }

    /// Number of acknowledged pings.
    pub fn pongs(&self) -> usize {
        let pong = |f: &&Frame| f.kind == PING && f.flags & ACK != 0;
        self.frames.iter().filter(pong).count()
    }
}

/// `:status` at the beginning of a header block: from the static table, or a literal with a name from there.
fn status(block: &[u8]) -> u16 {
    match *block {
        [indexed @ 0x88..=0x8e, ..] => {
            [200, 204, 206, 304, 400, 404, 500][usize::from(indexed - 0x88)]
        }
        [0x48 | 0x08, length, ref text @ ..] if length & 0x80 == 0 => {
            let text = text.get(..usize::from(length)).unwrap();
            std::str::from_utf8(text).unwrap().parse().unwrap()
        }
        [0x48 | 0x08, length, ref text @ ..] => {
            huffman(text.get(..usize::from(length & 0x7f)).unwrap())
        }
        _ => panic!("no status: {block:x?}"),
    }
}

/// Three digits in the code of RFC 7541, appendix B: 0 to 2 have five bits, 3 to 9 have six.
fn huffman(bytes: &[u8]) -> u16 {
    let mut bits = bytes
        .iter()
        .flat_map(|byte| (0..8).rev().map(move |at| u16::from(byte >> at & 1)));
    let mut number = 0;
    for _ in 0..3 {
        let five = (0..5).fold(0, |code, _| code << 1 | bits.next().unwrap());
        let digit = match five {
            0..=2 => five,
            _ => (five << 1 | bits.next().unwrap()) - 0x19 + 3,
        };
        number = number * 10 + digit;
    }
    number
}

/// A connection that sends arbitrary bytes. Responses are read continuously, unless the client is
/// deaf.
pub struct Attacker {
    write: Box<dyn AsyncWrite + Send + Unpin>,
    received: watch::Receiver<ReceivedFrames>,
    /// Keeps the connection open without reading from it.
    _unread: Option<Box<dyn AsyncRead + Send + Unpin>>,
}

impl Attacker {
    /// Opens a connection without sending anything.
    pub async fn connect(address: SocketAddr) -> Self {
        Attacker::on(TcpStream::connect(address).await.unwrap())
    }

    /// Creates an attacker on an existing stream, such as a TLS stream.
    pub fn on(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (read, write) = tokio::io::split(stream);
        let (sender, received) = watch::channel(ReceivedFrames::default());
        tokio::spawn(listen(read, sender));
        Attacker {
            write: Box::new(write),
            received,
            _unread: None,
        }
    }

    /// A connection with the preface and SETTINGS.
    pub async fn greet(address: SocketAddr) -> Self {
        Attacker::connect(address).await.greeted().await
    }

    /// Sends the preface and SETTINGS.
    pub async fn greeted(mut self) -> Self {
        self.send_bytes(&greeting(&[])).await.unwrap();
        self
    }

    /// Opens a connection that is never read.
    pub async fn unread(address: SocketAddr) -> Self {
        Attacker::unread_on(TcpStream::connect(address).await.unwrap())
            .greeted()
            .await
    }

    /// Creates an attacker on an existing stream that is never read.
    pub fn unread_on(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (read, write) = tokio::io::split(stream);
        let (_, received) = watch::channel(ReceivedFrames::default());
        Attacker {
            write: Box::new(write),
            received,
            _unread: Some(Box::new(read)),
        }
    }

    /// Sends bytes.
    ///
    /// # Errors
    /// When the server has closed the connection.
    pub async fn send_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        let written = async {
            self.write.write_all(bytes).await?;
            // TLS buffers the bytes that the socket did not accept.
            self.write.flush().await
        };
        within("room to write", written).await
    }

    /// Sends similar frames up to `times` times, or until the server closes the connection. Returns the number of
    /// repetitions.
    pub async fn flood(&mut self, times: u32, mut bytes: impl FnMut(u32) -> Vec<u8>) -> u32 {
        for first in (0..times).step_by(AT_ONCE) {
            let last = times.min(first + AT_ONCE as u32);
            let together: Vec<u8> = (first..last).flat_map(&mut bytes).collect();
            if self.send_bytes(&together).await.is_err() || self.received.borrow().closed {
                return first;
            }
            tokio::task::yield_now().await;
        }
        times
    }

    /// Waits until the received frames satisfy a condition, and returns the result of `take`.
    pub async fn wait_for<T>(
        &mut self,
        what: &str,
        take: impl Fn(&ReceivedFrames) -> Option<T>,
    ) -> T {
        let waiting = self
            .received
            .wait_for(|received| take(received).is_some() || received.closed);
        let received = within(what, waiting).await.unwrap();
        take(&received)
            .unwrap_or_else(|| panic!("the connection was closed before: {what}: {received:?}"))
    }

    /// Waits for the end of the connection. Returns the error code of the server, if any.
    pub async fn ended(&mut self) -> Option<u32> {
        let received = within(
            "the end of the connection",
            self.received.wait_for(|received| received.closed),
        );
        received.await.unwrap().goaway()
    }

    /// Waits for the response on a stream or the end of the connection. Returns the status of the response, if any.
    pub async fn answered(&mut self, stream: u32) -> Option<u16> {
        let waiting = self
            .received
            .wait_for(|received| received.status(stream).is_some() || received.closed);
        let received = within("an answer or the end of the connection", waiting);
        received.await.ok()?.status(stream)
    }

    /// Whether the server still responds to a ping.
    pub async fn is_alive(&mut self) -> bool {
        let before = self.received.borrow().pongs();
        if self
            .send_bytes(&frame(PING, 0, 0, b"are you?"))
            .await
            .is_err()
        {
            return false;
        }
        let waiting = self
            .received
            .wait_for(|received| received.pongs() > before || received.closed);
        within("an answer to a ping", waiting)
            .await
            .is_ok_and(|received| received.pongs() > before)
    }
}

/// Number of frames written at once.
const AT_ONCE: usize = 100;

async fn listen(mut read: impl AsyncRead + Unpin, received: watch::Sender<ReceivedFrames>) {
    while let Ok(frame) = next(&mut read).await {
        received.send_modify(|received| received.frames.push(frame));
    }
    received.send_modify(|received| received.closed = true);
}

async fn next(read: &mut (impl AsyncRead + Unpin)) -> io::Result<Frame> {
    let mut head = [0; 9];
    read.read_exact(&mut head).await?;
    let [a, b, c, kind, flags, stream @ ..] = head;
    let mut payload = vec![0; u32::from_be_bytes([0, a, b, c]) as usize];
    read.read_exact(&mut payload).await?;
    Ok(Frame {
        kind,
        flags,
        stream: u32::from_be_bytes(stream),
        payload,
    })
}
