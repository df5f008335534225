//! Detection of clients that do not use TLS on a port with TLS. Configurations often have this
//! not_tls, and the libraries of neither side explain the failure.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::failure::Failure;
use crate::tls::accept;
use crate::tls::reason::Reason;

/// Protocol that a client speaks instead of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotTls {
    Http1,
    Http2,
    /// Neither TLS nor HTTP.
    Unknown,
}

impl NotTls {
    /// Detects the not_tls from the first bytes of a connection, if the bytes arrived together.
    pub(super) fn of(first: &[u8]) -> Option<Self> {
        match first {
            // A TLS record of type "handshake" (RFC 8446, 5.1).
            [0x16, ..] => None,
            b"GET " | b"POST" | b"HEAD" | b"OPTI" | b"PUT " | b"DELE" | b"PATC" => {
                Some(NotTls::Http1)
            }
            b"PRI " => Some(NotTls::Http2),
            _ => Some(NotTls::Unknown),
        }
    }

    /// Responds in the client's own protocol, if known, and closes the connection.
    pub(super) async fn answer(self, mut stream: TcpStream) -> Result<(), Failure> {
        let (answer, text) = match self {
            NotTls::Http1 => (
                NOT_HTTP1,
                "the client speaks plaintext HTTP, but this port speaks TLS: use a URL that begins with https:// at \
                 the client",
            ),
            NotTls::Http2 => (
                NOT_HTTP2,
                "the client speaks plaintext HTTP/2, but this port speaks TLS: remove tls::insecure at the client",
            ),
            NotTls::Unknown => (
                NOT_TLS,
                "the client speaks neither TLS nor HTTP; this port speaks TLS",
            ),
        };
        stream.write_all(answer).await?;
        accept::end(stream).await;
        Err(Failure::mismatch(Reason::Plaintext.name(), text))
    }
}

const NOT_HTTP1: &[u8] =
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\nconnection: close\r\n\
    content-length: 36\r\n\r\nthis port speaks TLS; use https://\r\n";
/// An empty SETTINGS frame, as a server must begin (RFC 9113, 3.4), and a GOAWAY with INADEQUATE_SECURITY and the
/// reason as text (6.8, 7).
const NOT_HTTP2: &[u8] = b"\0\0\0\x04\0\0\0\0\0\
    \0\0\x1c\x07\0\0\0\0\0\0\0\0\0\0\0\0\x0cthis port speaks TLS";
/// The fatal alert unexpected_message (RFC 8446, 6).
const NOT_TLS: &[u8] = &[0x15, 0x03, 0x01, 0, 2, 2, 10];
