//! Reasons for failed scrapes, with advice.

use std::fmt;
use std::time::Duration;

use crate::receivers::profile_intake::Refused;
use crate::receivers::scraping::client::{Refusal, Unfetched};
use tributary_memory::NoRoom;

/// Reason for a missing profile.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub(super) enum Failure {
    /// There is no response, or it is incomplete.
    #[error("{0}")]
    Unreachable(String),
    /// The timeout has passed.
    #[error("the target did not respond within {}; raise `timeout` if the profile takes longer", shown(.0))]
    Slow(Duration),
    /// The response has an unsuccessful status.
    #[error("{}", Advised(.0))]
    Refused(Refusal),
    /// The body has an encoding that was not requested.
    #[error(
        "the response has the encoding `{0}`, which was not requested; check for a proxy in between"
    )]
    Encoding(String),
    /// The body is empty.
    #[error("the response is empty")]
    Empty,
    /// The body exceeds the limit.
    #[error("the profile is larger than {0} bytes; raise `max_response_body_size` to accept it")]
    TooLarge(usize),
    /// The body is not a pprof file.
    #[error("the response{} is not a usable pprof file: {error}{}", typed(content_type), .advice)]
    Content {
        /// Content type according to the server.
        content_type: String,
        /// Reason for the refusal.
        error: String,
        /// Advice, if there is any.
        advice: &'static str,
    },
    /// The memory budget has no room for the body.
    #[error("{0}")]
    NoRoom(NoRoom),
}

impl From<Unfetched> for Failure {
    fn from(unfetched: Unfetched) -> Self {
        match unfetched {
            Unfetched::Unreachable(reason) => Failure::Unreachable(reason),
            Unfetched::Refused(refusal) => Failure::Refused(refusal),
            Unfetched::TooLarge(limit) => Failure::TooLarge(limit),
            Unfetched::NoRoom(no_room) => Failure::NoRoom(no_room),
        }
    }
}

impl Failure {
    /// Creates the failure for a refused body.
    pub(super) fn content(content_type: &str, error: &Refused) -> Self {
        let error = error.to_string();
        let advice = match error.contains("HTML") {
            true => "; if it is a login page, set `auth` or `headers`",
            false => "",
        };
        Failure::Content {
            content_type: content_type.to_owned(),
            error,
            advice,
        }
    }
}

/// An unsuccessful response with advice.
struct Advised<'a>(&'a Refusal);

impl fmt::Display for Advised<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal {
            status,
            location,
            said: body,
        } = self.0;
        write!(f, "the response status is {status}")?;
        let said = first_line(body);
        if !said.is_empty() && !body.trim_start().starts_with('<') {
            write!(f, " ({said})")?;
        }
        match (status.as_u16(), location) {
            (_, Some(location)) => {
                let location = first_line(location);
                write!(f, ", a redirect to {location}; redirects are not followed: configure that URL if it is \
                           correct")
            }
            (401 | 403, _) => f.write_str("; set or correct `auth` or `headers`"),
            (404, _) => f.write_str(
                "; check the path, and that the program serves it (in Go: import net/http/pprof)",
            ),
            _ if body.contains("already in use") => f.write_str(
                "; the target is taking another CPU profile, and supports one at a time: stop the other profiler",
            ),
            _ if body.contains("WriteTimeout") => {
                f.write_str("; lower `seconds`, or raise the WriteTimeout of the target")
            }
            _ => Ok(()),
        }
    }
}

/// Returns the first line of a text, shortened for the log.
fn first_line(text: &str) -> String {
    const LONGEST: usize = 200;
    let line = text.trim().lines().next().unwrap_or_default();
    let visible = line.chars().filter(|letter| !letter.is_control());
    visible.take(LONGEST).collect()
}

fn typed(content_type: &str) -> String {
    match first_line(content_type) {
        none if none.is_empty() => none,
        some => format!(" ({some})"),
    }
}

fn shown(duration: &Duration) -> tributary_config::units::Duration {
    tributary_config::units::Duration(*duration)
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::*;

    fn refused(status: u16, location: Option<&str>, said: &str) -> String {
        Failure::Refused(Refusal {
            status: StatusCode::from_u16(status).unwrap(),
            location: location.map(str::to_owned),
            said: said.to_owned(),
        })
        .to_string()
    }

    #[test]
    fn refusals_name_cause_and_remedy() {
        for (message, parts) in [
            (
                refused(
                    500,
                    None,
                    "Could not enable CPU profiling: cpu profiling already in use\n",
                ),
                ["500", "already in use", "stop the other profiler"],
            ),
            (
                refused(
                    400,
                    None,
                    "profile duration exceeds server's WriteTimeout\n",
                ),
                ["400", "exceeds", "lower `seconds`"],
            ),
            (refused(401, None, ""), ["401", "Unauthorized", "`auth`"]),
            (
                refused(404, None, "404 page not found\nmore"),
                ["404", "(404 page not found)", "import net/http/pprof"],
            ),
            (
                refused(302, Some("https://login\n.example/"), "<a href"),
                ["302", "to https://login;", "not followed"],
            ),
            (
                refused(503, None, "a\u{7}b"),
                ["503", "Service Unavailable", "(ab)"],
            ),
        ] {
            for part in parts {
                assert!(message.contains(part), "{message}: {part}");
            }
            assert!(
                !message.contains('\n') && !message.contains("<a"),
                "{message}"
            );
        }
    }
}
