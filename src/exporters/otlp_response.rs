//! Responses of an OTLP server, over gRPC or HTTP: partial success, `google.rpc.Status`, retry delays.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::GeneralPurpose;
use base64::engine::{DecodePaddingMode, GeneralPurposeConfig};
use prost::Message;
use serde::Deserialize;

use crate::pipeline::batch::Code;
use crate::queue::{Fault, Outcome, SendError};
use tributary_net::auth::ClientAuthenticator;
use tributary_net::rpc::{Status, is_retryable};

/// `Export*ServiceResponse` of every signal: the field numbers are the same in all four.
#[derive(Clone, PartialEq, Message)]
struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<PartialSuccess>,
}

/// `Export*PartialSuccess`.
#[derive(Clone, PartialEq, Message)]
struct PartialSuccess {
    #[prost(int64, tag = "1")]
    rejected: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

/// Reads the outcome in a protobuf response body. An empty body means full success.
pub(super) fn outcome(body: &[u8]) -> Result<Outcome, prost::DecodeError> {
    let partial = ExportResponse::decode(body)?
        .partial_success
        .unwrap_or_default();
    Ok(Outcome {
        rejected_items: usize::try_from(partial.rejected).unwrap_or(0),
        message: shortened(&partial.error_message).into_owned(),
    })
}

/// Reads the outcome in a JSON response body.
pub(super) fn json_outcome(body: &[u8]) -> Result<Outcome, serde_json::Error> {
    /// JSON names the count differently for each signal, and encodes 64-bit integers as strings.
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct JsonResponse {
        partial_success: Option<JsonPartialSuccess>,
    }
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct JsonPartialSuccess {
        #[serde(
            alias = "rejectedSpans",
            alias = "rejectedDataPoints",
            alias = "rejectedLogRecords",
            alias = "rejectedProfiles"
        )]
        rejected: Option<Count>,
        error_message: Option<String>,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Count {
        Number(i64),
        Text(String),
    }
    let response: JsonResponse = serde_json::from_slice(body)?;
    let partial = response.partial_success.unwrap_or_default();
    let rejected = match partial.rejected {
        Some(Count::Number(count)) => count,
        Some(Count::Text(count)) => count.parse().unwrap_or(0),
        None => 0,
    };
    Ok(Outcome {
        rejected_items: usize::try_from(rejected).unwrap_or(0),
        message: shortened(&partial.error_message.unwrap_or_default()).into_owned(),
    })
}

/// Returns the text of a refusal's body, to be appended to a sentence. The body is a `google.rpc.Status`, as protobuf
/// or JSON, or plain text.
pub(super) fn status_text(protobuf: bool, body: &[u8]) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct JsonStatus {
        message: String,
        details: Vec<serde_json::Value>,
    }
    let (message, details) = if protobuf {
        let status = Status::decode(body).unwrap_or_default();
        let details = status.details.into_iter().map(|any| any.type_url);
        (status.message, details.collect::<Vec<String>>())
    } else {
        match serde_json::from_slice::<JsonStatus>(body) {
            Ok(status) => {
                let details = status.details.iter().map(ToString::to_string);
                (status.message, details.collect())
            }
            Err(_) => (String::from_utf8_lossy(body).trim().to_owned(), Vec::new()),
        }
    };
    let message = shortened(&message);
    match (message.is_empty(), details.is_empty()) {
        (true, true) => String::new(),
        (false, true) => format!(", Message={message}"),
        (_, false) => {
            let details = details.join(", ");
            format!(", Message={message}, Details=[{}]", shortened(&details))
        }
    }
}

/// Shortens a server's message for the log.
fn shortened(text: &str) -> Cow<'_, str> {
    const MAX_SHOWN_LENGTH: usize = 1024;
    if text.len() <= MAX_SHOWN_LENGTH {
        return text.into();
    }
    let end = (0..=MAX_SHOWN_LENGTH)
        .rev()
        .find(|end| text.is_char_boundary(*end));
    let shown = end.and_then(|end| text.get(..end)).unwrap_or_default();
    format!("{shown}...").into()
}

/// Returns the error for a gRPC status.
///
/// The specification defines the retryable codes (<https://opentelemetry.io/docs/specs/otlp/#failures>).
/// RESOURCE_EXHAUSTED is retryable only if the server gives a delay.
pub(super) fn refused(code: Code, message: &str, delay: Option<Duration>) -> SendError {
    let reason = format!("rpc error: code = {code:?} desc = {}", shortened(message));
    let retryable = is_retryable(code) || (code == Code::ResourceExhausted && delay.is_some());
    if retryable {
        return SendError {
            throttle: delay.filter(|delay| !delay.is_zero()),
            ..SendError::transient(code, reason)
        };
    }
    SendError::permanent(code, Fault::of(code), reason)
}

/// Makes an `UNAUTHENTICATED` refusal retryable if the credentials have been renewed since the attempt, which used
/// `version` of the credentials. Without this, the refusal of outdated credentials would lose the data.
pub(super) fn unless_renewed(
    auth: Option<&dyn ClientAuthenticator>,
    version: u64,
    outcome: Result<Outcome, SendError>,
) -> Result<Outcome, SendError> {
    let Some(auth) = auth else {
        return outcome;
    };
    outcome.map_err(|error| {
        if error.code != Code::Unauthenticated {
            return error;
        }
        auth.refresh();
        match auth.version() == version {
            true => error,
            false => SendError::transient(
                error.code,
                error.reason + " (the credentials have changed since)",
            ),
        }
    })
}

/// Decodes a `-bin` header: base64, with or without padding.
pub(super) fn binary_header(value: &[u8]) -> Option<Vec<u8>> {
    const EITHER: GeneralPurpose = GeneralPurpose::new(
        &base64::alphabet::STANDARD,
        GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
    );
    EITHER.decode(value).ok()
}

/// Decodes `grpc-message`, which is percent-encoded UTF-8. Invalid sequences stay as they are.
pub(super) fn percent_decoded(value: &[u8]) -> String {
    let mut out = Vec::with_capacity(value.len());
    let mut rest = value;
    while let [first, tail @ ..] = rest {
        let hex = |digit: u8| {
            char::from(digit)
                .to_digit(16)
                .and_then(|d| u8::try_from(d).ok())
        };
        let escaped = match tail {
            [high, low, after @ ..] if *first == b'%' => hex(*high)
                .zip(hex(*low))
                .map(|(high, low)| (high << 4 | low, after)),
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*first, tail));
        out.push(byte);
        rest = after;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_partial_success_means_full_success() {
        use opentelemetry_proto::tonic::collector::logs::v1 as logs;
        use opentelemetry_proto::tonic::collector::profiles::v1development as profiles;
        let expected = Outcome {
            rejected_items: 3,
            message: "bad".to_owned(),
        };
        let body = logs::ExportLogsServiceResponse {
            partial_success: Some(logs::ExportLogsPartialSuccess {
                rejected_log_records: 3,
                error_message: "bad".to_owned(),
            }),
        };
        assert_eq!(outcome(&body.encode_to_vec()).unwrap(), expected);
        let body = profiles::ExportProfilesServiceResponse {
            partial_success: Some(profiles::ExportProfilesPartialSuccess {
                rejected_profiles: 3,
                error_message: "bad".to_owned(),
            }),
        };
        assert_eq!(outcome(&body.encode_to_vec()).unwrap(), expected);
        assert_eq!(outcome(b"").unwrap(), Outcome::default());
        assert!(outcome(b"<html>").is_err());
    }

    #[test]
    fn codes_of_the_specification_are_retried() {
        let retried: Vec<i32> = (0..17)
            .filter(|code| refused(Code::from_i32(*code), "", None).retryable)
            .collect();
        assert_eq!(retried, [1, 4, 10, 11, 14, 15]);
        let second = Some(Duration::from_secs(1));
        let exhausted = refused(Code::ResourceExhausted, "", second);
        assert_eq!((exhausted.retryable, exhausted.throttle), (true, second));
        assert!(!refused(Code::InvalidArgument, "", second).retryable);
        let unavailable = refused(Code::Unavailable, "", Some(Duration::ZERO));
        assert_eq!((unavailable.retryable, unavailable.throttle), (true, None));
    }

    #[test]
    fn long_server_messages_are_truncated_in_log() {
        let much = "\u{e4}".repeat(100_000);
        let over_grpc = refused(Code::Internal, &much, None).reason;
        assert!(over_grpc.len() < 1100, "{}", over_grpc.len());
        let details = serde_json::json!({"message": much, "details": [much, much]});
        let over_http = status_text(false, details.to_string().as_bytes());
        assert!(over_http.len() < 2200, "{}", over_http.len());
        let partial = ExportResponse {
            partial_success: Some(PartialSuccess {
                rejected: 1,
                error_message: much.clone(),
            }),
        };
        let in_protobuf = outcome(&partial.encode_to_vec()).unwrap().message;
        assert!(in_protobuf.len() < 1100, "{}", in_protobuf.len());
        let partial = serde_json::json!({"partialSuccess": {"errorMessage": much}});
        let in_json = json_outcome(partial.to_string().as_bytes())
            .unwrap()
            .message;
        assert!(in_json.len() < 1100, "{}", in_json.len());
    }

    #[test]
    fn messages_are_percent_decoded_and_never_fail() {
        assert_eq!(percent_decoded(b"a%20b%C3%A4%2"), "a b\u{e4}%2");
        assert_eq!(percent_decoded(b"%zz%"), "%zz%");
        assert_eq!(percent_decoded(b""), "");
    }

    #[test]
    fn binary_headers_are_read_with_and_without_padding() {
        assert_eq!(binary_header(b"YQ=="), Some(b"a".to_vec()));
        assert_eq!(binary_header(b"YQ"), Some(b"a".to_vec()));
        assert_eq!(binary_header(b"!"), None);
    }
}
