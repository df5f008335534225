//! Reasons for failed scrapes, with advice.

use std::time::Duration;

use crate::receivers::scraping::client::{Refusal, Unfetched};
use tributary_compression::decompress::DecompressError;
use tributary_memory::NoRoom;
use tributary_prometheus::PageFault;

/// Reason why a scrape has no samples.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum ScrapeFailure {
    /// There is no response, or it is incomplete.
    #[error("{0}")]
    Unreachable(String),
    /// The timeout has passed.
    #[error(
        "the target did not respond within {0:?}; raise `scrape_timeout` if the page takes longer"
    )]
    Slow(Duration),
    /// The response has an unsuccessful status.
    #[error("the response status is {status}{}{}", located(.location.as_deref()), advice(*.status))]
    Status {
        /// Status code.
        status: u16,
        /// Target of a redirect.
        location: Option<String>,
    },
    /// There are too many redirects.
    #[error("there are more than {0} redirects")]
    Redirects(usize),
    /// A file with credentials cannot be read.
    #[error("cannot read the credentials: {0}")]
    Credentials(String),
    /// The body has an encoding that was not requested.
    #[error(
        "the response has the encoding `{0}`, which was not requested; check for a proxy in between"
    )]
    Encoding(String),
    /// The body cannot be decompressed.
    #[error("the response cannot be decompressed: {0}")]
    Compression(String),
    /// The body exceeds the limit.
    #[error("the page is larger than {0} bytes; raise `body_size_limit` to accept it")]
    TooLarge(usize),
    /// The page has a mistake.
    #[error("the page is malformed: {0}")]
    Page(#[from] PageFault),
    /// The page exceeds a configured limit.
    #[error("{0}")]
    Limit(String),
    /// The memory budget has no room for the page.
    #[error("{0}")]
    NoRoom(#[from] NoRoom),
}

impl From<Unfetched> for ScrapeFailure {
    fn from(unfetched: Unfetched) -> Self {
        match unfetched {
            Unfetched::Unreachable(reason) => ScrapeFailure::Unreachable(reason),
            Unfetched::Refused(Refusal {
                status, location, ..
            }) => ScrapeFailure::Status {
                status: status.as_u16(),
                location,
            },
            Unfetched::TooLarge(limit) => ScrapeFailure::TooLarge(limit),
            Unfetched::NoRoom(no_room) => ScrapeFailure::NoRoom(no_room),
        }
    }
}

impl From<DecompressError> for ScrapeFailure {
    fn from(error: DecompressError) -> Self {
        match error {
            DecompressError::TooLarge(limit) => ScrapeFailure::TooLarge(limit),
            DecompressError::NoMemory(no_room) => ScrapeFailure::NoRoom(no_room),
            error => ScrapeFailure::Compression(error.to_string()),
        }
    }
}

fn located(location: Option<&str>) -> String {
    match location {
        Some(location) => {
            let visible = location
                .chars()
                .filter(|letter| !letter.is_control())
                .take(200);
            format!(
                ", a redirect to {}; set `follow_redirects: true` to follow it",
                visible.collect::<String>()
            )
        }
        None => String::new(),
    }
}

fn advice(status: u16) -> &'static str {
    match status {
        401 | 403 => "; set or correct `basic_auth`, `authorization` or `tls_config`",
        404 => "; check `metrics_path`",
        _ => "",
    }
}
