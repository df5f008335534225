//! Requests to the token endpoint.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use http_body_util::{BodyExt as _, Limited};
use serde::Deserialize;
use tokio::time::timeout;

use super::config::Config;
use tributary_config::{ComponentId, Secret, without_url_secrets};
use tributary_net::Owner;
use tributary_net::client::{
    Chunks, ClientOptions, Connector, RenewingClient, full_error, host_of, parse_url,
};
use tributary_net::tls::rotation::RotatingClient;

/// Time limit of a request if none is configured.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum size of a response in bytes. Signed tokens with many claims have a few kilobytes.
const MAX_BODY: usize = 256 << 10;

/// Maximum length of a server's error in a message.
const MAX_REASON: usize = 200;

/// Lifetime of a token without `expires_in`. The server has not said how long the token lasts, so that a new one is
/// fetched from time to time.
const LIFETIME: Duration = Duration::from_secs(3600);

/// A token endpoint and the client's credentials.
pub(super) struct TokenEndpoint {
    config: Config,
    client: RenewingClient,
    url: Uri,
    /// URL without secrets, for messages.
    shown: String,
    timeout: Duration,
    /// Whether the server expects the credentials in the body instead of a header.
    credentials_in_body: AtomicBool,
}

/// A token as the value of the header `authorization`.
#[derive(Debug)]
pub(super) struct FetchedToken {
    pub(super) header: HeaderValue,
    pub(super) lifetime: Duration,
}

/// A successful response (RFC 6749, 5.1). Some servers send numbers as texts.
#[derive(Deserialize)]
struct TokenResponse {
    access_token: String,
    #[serde(default)]
    token_type: String,
    #[serde(default)]
    expires_in: Option<Seconds>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Seconds {
    Number(f64),
    Text(String),
}

/// An error response (RFC 6749, 5.2).
#[derive(Deserialize)]
struct ErrorResponse {
    error: String,
    #[serde(default)]
    error_description: String,
}

impl TokenEndpoint {
    pub(super) fn new(config: &Config, id: &ComponentId) -> Result<Self, String> {
        let url = parse_url(&config.token_url)?;
        let host = host_of(&url);
        let (tls, named, port) = match url.scheme_str() {
            Some("https") => {
                let owner = Owner::new(id, "extension");
                let source = RotatingClient::new(&config.tls, &[b"h2", b"http/1.1"], owner);
                let source = source.map_err(|error| error.to_string())?;
                let name = config.tls.server_name(host);
                let name = name.map_err(|error| error.to_string())?;
                (Some(source.clone()), Some((source, name)), 443)
            }
            _ => (None, None, 80),
        };
        let connector = Connector::new(host, url.port_u16().unwrap_or(port), named);
        let authority = url.authority().cloned().into_iter();
        let hosts: HashMap<_, _> = authority.map(|host| (host, connector.clone())).collect();
        Ok(TokenEndpoint {
            client: ClientOptions::default().client(hosts, tls),
            shown: without_url_secrets(&config.token_url).into_owned(),
            url,
            timeout: config.timeout.unless_zero().unwrap_or(TIMEOUT),
            config: config.clone(),
            credentials_in_body: AtomicBool::new(false),
        })
    }

    /// Fetches a token.
    ///
    /// # Errors
    /// The reason, without secrets.
    pub(super) async fn fetch(&self) -> Result<FetchedToken, String> {
        let exchange = async {
            let in_body = self.credentials_in_body.load(Relaxed);
            match self.request(in_body).await {
                // RFC 6749, 2.3.1: the header is preferred, but not each server accepts it.
                Err((Some(StatusCode::UNAUTHORIZED | StatusCode::BAD_REQUEST), reason))
                    if !in_body =>
                {
                    let fetched = self.request(true).await.map_err(|_| reason)?;
                    self.credentials_in_body.store(true, Relaxed);
                    Ok(fetched)
                }
                result => result.map_err(|(_, reason)| reason),
            }
        };
        let result = timeout(self.timeout, exchange).await;
        result.unwrap_or_else(|_| Err(format!("{} did not respond in time", self.shown)))
    }

    async fn request(&self, in_body: bool) -> Result<FetchedToken, (Option<StatusCode>, String)> {
        let failed = |reason: String| (None, format!("{}: {reason}", self.shown));
        let (id, secret) = self.config.credentials().map_err(|reason| (None, reason))?;
        let body = Bytes::from(self.form(in_body.then_some((&id, &secret))));
        let mut authorization = HeaderValue::try_from(basic(&id, &secret))
            .map_err(|error| failed(error.to_string()))?;
        authorization.set_sensitive(true);
        let request = || {
            let mut request = Request::new(Chunks::new([body.clone()].into()));
            *request.method_mut() = Method::POST;
            *request.uri_mut() = self.url.clone();
            let headers = request.headers_mut();
            let form = HeaderValue::from_static("application/x-www-form-urlencoded");
            headers.insert(CONTENT_TYPE, form);
            headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
            if !in_body {
                headers.insert(AUTHORIZATION, authorization.clone());
            }
            request
        };
        let response = self.client.send(request).await;
        let response = response.map_err(|error| failed(full_error(&error)))?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_BODY).collect().await;
        let body = body.map_err(|error| failed(error.to_string()))?.to_bytes();
        if head.status != StatusCode::OK {
            let reason = format!("{} responded with {}", self.shown, head.status);
            return Err((Some(head.status), reason + &said(&body)));
        }
        let token: TokenResponse = serde_json::from_slice(&body)
            .map_err(|_| failed("the response is not JSON with an `access_token`".to_owned()))?;
        token.into_header().map_err(failed)
    }

    /// Returns the form to send.
    fn form(&self, credentials: Option<(&String, &Secret)>) -> String {
        let mut form = "grant_type=client_credentials".to_owned();
        let mut add = |key: &str, value: &str| {
            form.push('&');
            escape(key, &mut form);
            form.push('=');
            escape(value, &mut form);
        };
        if !self.config.scopes.is_empty() {
            add("scope", &self.config.scopes.join(" "));
        }
        for (key, values) in &self.config.endpoint_params {
            values.iter().for_each(|value| add(key, value));
        }
        if let Some((id, secret)) = credentials {
            add("client_id", id);
            add("client_secret", secret.reveal());
        }
        form
    }
}

impl TokenResponse {
    fn into_header(self) -> Result<FetchedToken, String> {
        if self.access_token.is_empty() {
            return Err("the response has an empty `access_token`".to_owned());
        }
        let kind = match self.token_type.as_str() {
            kind if kind.is_empty() || kind.eq_ignore_ascii_case("bearer") => "Bearer",
            kind => kind,
        };
        let header = HeaderValue::try_from(format!("{kind} {}", self.access_token));
        let mut header = header
            .map_err(|_| "the token has characters that are not allowed in a header".to_owned())?;
        header.set_sensitive(true);
        let seconds = match self.expires_in {
            Some(Seconds::Number(number)) => Some(number),
            Some(Seconds::Text(text)) => text.trim().parse().ok(),
            None => None,
        };
        let lifetime = seconds.filter(|seconds: &f64| *seconds > 0.0);
        let lifetime = lifetime.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        Ok(FetchedToken {
            header,
            lifetime: lifetime.unwrap_or(LIFETIME),
        })
    }
}

/// Returns credentials for the scheme `Basic`, escaped as RFC 6749, 2.3.1 says.
fn basic(id: &str, secret: &Secret) -> String {
    let mut text = String::new();
    escape(id, &mut text);
    text.push(':');
    escape(secret.reveal(), &mut text);
    format!("Basic {}", STANDARD.encode(text))
}

/// Appends a text in the encoding of forms.
fn escape(text: &str, output: &mut String) {
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                output.push(char::from(byte));
            }
            b' ' => output.push('+'),
            byte => {
                let _ = write!(output, "%{byte:02X}");
            }
        }
    }
}

/// Returns the error in a response, to append to a message.
fn said(body: &[u8]) -> String {
    let Ok(error) = serde_json::from_slice::<ErrorResponse>(body) else {
        return String::new();
    };
    let text = match error.error_description.as_str() {
        "" => format!(" ({})", error.error),
        description => format!(" ({}: {description})", error.error),
    };
    let visible = text.chars().filter(|character| !character.is_control());
    visible.take(MAX_REASON).collect()
}
