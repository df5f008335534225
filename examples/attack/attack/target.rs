//! The collector under attack: its addresses, and connections to them.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request};
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};
use tokio_rustls::TlsConnector;
use tributary_net::tls::ClientTls;

use super::{Options, Signal, attacks, raw};

/// The address of a server on this machine.
#[derive(Debug, Clone, Copy)]
pub struct Address {
    pub socket: SocketAddr,
    pub tls: bool,
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (tls, rest) = match text.split_once("://") {
            None => (false, text),
            Some(("http", rest)) => (false, rest),
            Some(("https", rest)) => (true, rest),
            Some((scheme, _)) => return Err(format!("unknown scheme `{scheme}`")),
        };
        let socket: SocketAddr = rest.parse().map_err(|_| {
            format!("`{rest}` is not IP:PORT; write 127.0.0.1 or [::1] instead of a name")
        })?;
        if !socket.ip().to_canonical().is_loopback() {
            return Err(format!(
                "{} is not a loopback address; the suite attacks only collectors on this machine",
                socket.ip()
            ));
        }
        Ok(Address { socket, tls })
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.socket.fmt(f)
    }
}

/// A server of the collector.
#[derive(Debug, Clone, Copy)]
pub struct Server {
    pub name: &'static str,
    pub address: Address,
    /// Whether the server also accepts HTTP/1.
    pub speaks_http1: bool,
    /// A path with a response to GET, if any.
    pub path: &'static str,
}

/// A protocol to offer in the TLS handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// The client that opens a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Good,
    Attacker,
}

/// A connection, with or without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    /// The status of gRPC, if any.
    pub grpc: Option<i32>,
}

impl Answer {
    pub fn is_accepted(&self) -> bool {
        self.status == 200 && matches!(self.grpc, None | Some(0))
    }

    /// Whether the response is a refusal because the memory is full: RESOURCE_EXHAUSTED, or 429.
    pub fn asks_to_retry(&self) -> bool {
        self.status == 429 || self.grpc == Some(8)
    }
}

/// The collector under attack.
pub struct Target {
    pub options: Options,
    /// Signals that the collector accepts.
    pub signals: Vec<Signal>,
    http1: Option<TlsConnector>,
    http2: Option<TlsConnector>,
}

impl Target {
    /// Connects to the collector and finds the signals that it accepts.
    pub async fn find(options: &Options) -> Result<Self, String> {
        let mut target = Target {
            options: options.clone(),
            signals: Vec::new(),
            http1: None,
            http2: None,
        };
        if target.options.grpc.is_none() && target.options.http.is_none() {
            return Err("no address to attack; set --grpc, --http or both".to_owned());
        }
        if target.servers().any(|server| server.address.tls) {
            let section = ClientTls {
                ca_file: options.ca_file.clone().unwrap_or_default(),
                cert_file: options.cert_file.clone().unwrap_or_default(),
                key_file: options.key_file.clone().unwrap_or_default(),
                ..ClientTls::default()
            };
            let connector = |alpn: &[u8]| {
                let config = section.build(&[alpn]);
                let config = config.map_err(|error| format!("cannot set up TLS: {error}"))?;
                Ok::<_, String>(TlsConnector::from(Arc::new(config)))
            };
            target.http1 = Some(connector(b"http/1.1")?);
            target.http2 = Some(connector(b"h2")?);
        }
        let mut last = String::new();
        for signal in [
            Signal::Traces,
            Signal::Metrics,
            Signal::Logs,
            Signal::Profiles,
        ] {
            match target.send_good(signal, Side::Good).await {
                Ok(answer) if answer.is_accepted() => target.signals.push(signal),
                Ok(answer) => last = format!("{signal}: {answer:?}"),
                Err(error) => last = format!("{signal}: {error}"),
            }
        }
        match target.signals.is_empty() {
            true => Err(format!("the collector accepts no request; {last}")),
            false => Ok(target),
        }
    }

    /// The servers to attack.
    pub fn servers(&self) -> impl Iterator<Item = Server> + use<> {
        let options = &self.options;
        [
            ("grpc", options.grpc, false, ""),
            ("http", options.http, true, "/v1/traces"),
            ("pprof", options.pprof, true, "/v1/pprof"),
            ("health", options.health, true, "/"),
            ("metrics", options.metrics, true, "/metrics"),
        ]
        .into_iter()
        .filter_map(|(name, address, speaks_http1, path)| {
            Some(Server {
                name,
                address: address?,
                speaks_http1,
                path,
            })
        })
    }

    /// Opens a TCP connection. Attackers have a separate address if the system has one.
    pub async fn tcp(&self, address: Address, side: Side) -> io::Result<TcpStream> {
        let socket = match address.socket {
            SocketAddr::V4(_) => TcpSocket::new_v4()?,
            SocketAddr::V6(_) => TcpSocket::new_v6()?,
        };
        if side == Side::Attacker && address.socket.is_ipv4() {
            let other = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
            // Only Linux has other loopback addresses than 127.0.0.1.
            let _ = socket.bind((other, 0).into());
        }
        socket.connect(address.socket).await
    }

    /// Opens a connection, with TLS if the server requires TLS.
    pub async fn connect(
        &self,
        address: Address,
        protocol: Protocol,
        side: Side,
    ) -> io::Result<Box<dyn Stream>> {
        let stream = self.tcp(address, side).await?;
        let connector = match protocol {
            Protocol::Http1 => &self.http1,
            Protocol::Http2 => &self.http2,
        };
        match connector {
            Some(connector) if address.tls => {
                let name = ServerName::IpAddress(address.socket.ip().into());
                Ok(Box::new(connector.connect(name, stream).await?))
            }
            _ => Ok(Box::new(stream)),
        }
    }

    /// Sends a request over HTTP/1 on a new connection.
    pub async fn post(
        &self,
        address: Address,
        path: &str,
        headers: &[(&str, &str)],
        body: Bytes,
        side: Side,
    ) -> Result<Answer, String> {
        let request = request(address, path, headers, body)?;
        let stream = self.connect(address, Protocol::Http1, side).await;
        let io = TokioIo::new(stream.map_err(|error| error.to_string())?);
        let handshake = hyper::client::conn::http1::handshake(io).await;
        let (mut sender, connection) = handshake.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(connection);
        let answer = answer(sender.send_request(request).await).await;
        connection.abort();
        answer
    }

    /// Makes a gRPC call with this frame on a new connection.
    pub async fn call(
        &self,
        address: Address,
        signal: Signal,
        encoding: &str,
        frame: Bytes,
        side: Side,
    ) -> Result<Answer, String> {
        let mut sender = self.channel(address, side).await?;
        sender.call(address, signal, encoding, frame).await
    }

    /// Opens a connection for gRPC calls.
    pub async fn channel(&self, address: Address, side: Side) -> Result<Channel, String> {
        let stream = self.connect(address, Protocol::Http2, side).await;
        let io = TokioIo::new(stream.map_err(|error| error.to_string())?);
        let executor = TokioExecutor::new();
        let handshake = hyper::client::conn::http2::handshake(executor, io).await;
        let (sender, connection) = handshake.map_err(|error| error.to_string())?;
        let connection = tokio::spawn(async move { drop(connection.await) });
        Ok(Channel { sender, connection })
    }

    /// Sends one small item as a well-behaved client would, on a new connection.
    pub async fn send_good(&self, signal: Signal, side: Side) -> Result<Answer, String> {
        let item = good(signal);
        if let Some(address) = self.options.grpc {
            let frame = raw::frame(false, &item).into();
            return self.call(address, signal, "identity", frame, side).await;
        }
        let address = self.options.http.ok_or("no address")?;
        self.post(address, raw::path(signal), PROTOBUF, item, side)
            .await
    }
}

/// Headers of OTLP/HTTP.
pub const PROTOBUF: &[(&str, &str)] = &[("content-type", "application/x-protobuf")];

/// A request with one item.
pub fn good(signal: Signal) -> Bytes {
    let item = match signal {
        Signal::Profiles => attacks::message(2, &attacks::message(2, &[0x22, 1, 1])),
        _ => attacks::message(2, &[]),
    };
    attacks::request(&item).into()
}

/// A connection for gRPC calls.
pub struct Channel {
    sender: hyper::client::conn::http2::SendRequest<Full<Bytes>>,
    connection: tokio::task::JoinHandle<()>,
}

impl Channel {
    pub async fn call(
        &mut self,
        address: Address,
        signal: Signal,
        encoding: &str,
        frame: Bytes,
    ) -> Result<Answer, String> {
        let headers = [
            ("content-type", "application/grpc"),
            ("te", "trailers"),
            ("grpc-encoding", encoding),
        ];
        let request = request(address, raw::method(signal), &headers, frame)?;
        answer(self.sender.send_request(request).await).await
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

fn request(
    address: Address,
    path: &str,
    headers: &[(&str, &str)],
    body: Bytes,
) -> Result<Request<Full<Bytes>>, String> {
    let scheme = if address.tls { "https" } else { "http" };
    let mut request = Request::builder()
        .method(Method::POST)
        .uri(format!("{scheme}://{address}{path}"))
        .header("host", address.to_string());
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(Full::new(body));
    request.map_err(|error| error.to_string())
}

async fn answer(
    response: hyper::Result<http::Response<hyper::body::Incoming>>,
) -> Result<Answer, String> {
    let (head, body) = response.map_err(|error| error.to_string())?.into_parts();
    let body = body.collect().await.map_err(|error| error.to_string())?;
    let mut headers = head.headers;
    headers.extend(body.trailers().cloned().unwrap_or_default());
    let grpc = headers.get("grpc-status");
    Ok(Answer {
        status: head.status.as_u16(),
        grpc: grpc.and_then(|value| value.to_str().ok()?.parse().ok()),
    })
}
