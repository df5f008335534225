//! Cross-origin requests (the Fetch standard, "CORS protocol").

use bytes::Bytes;
use http::header::{
    ACCESS_CONTROL_ALLOW_CREDENTIALS, ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS,
    ACCESS_CONTROL_ALLOW_ORIGIN, ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE,
    ACCESS_CONTROL_REQUEST_HEADERS, ACCESS_CONTROL_REQUEST_METHOD, HeaderMap, HeaderValue, ORIGIN,
    VARY,
};
use http::{HeaderName, Method, Request, Response, StatusCode};
use http_body_util::Full;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use tributary_config::{Problems, Validate};

/// Cross-origin requests.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Cors {
    /// Allowed origins, as in `https://app.example.com`. `*` matches any text:
    /// `https://*.example.com`. A single `*` allows every origin, without credentials.
    pub allowed_origins: Vec<String>,
    /// Request headers that browsers may send; `*` allows all. `Accept`, `Content-Type`,
    /// `X-Requested-With` are always allowed.
    pub allowed_headers: Vec<String>,
    /// Response headers that scripts may read.
    pub exposed_headers: Vec<String>,
    /// Time in seconds for which browsers may cache the response to a preflight. Default: 0: the
    /// browser's default.
    pub max_age: u32,
}

/// The policy of a configuration, prepared for use.
pub(crate) struct Policy {
    /// Allowed origins, in lower case.
    origins: Vec<String>,
    /// Allowed request headers, in lower case. `None` if all headers are allowed.
    headers: Option<Vec<String>>,
    expose: Option<HeaderValue>,
    max_age: Option<HeaderValue>,
}

impl Policy {
    pub(crate) fn new(cors: &Cors) -> Self {
        let lower = |texts: &[String]| texts.iter().map(|text| text.to_ascii_lowercase()).collect();
        let all_headers = cors.allowed_headers.iter().any(|name| name == "*");
        let exposed = cors.exposed_headers.join(", ");
        Policy {
            origins: lower(&cors.allowed_origins),
            headers: (!all_headers).then(|| {
                let mut allowed: Vec<String> = lower(&cors.allowed_headers);
                allowed.extend(ALWAYS_ALLOWED.map(str::to_owned));
                allowed
            }),
            expose: HeaderValue::try_from(exposed)
                .ok()
                .filter(|value| !value.is_empty()),
            max_age: (cors.max_age > 0).then(|| HeaderValue::from(cors.max_age)),
        }
    }

    /// Returns the response to a preflight; `None` for other requests.
    pub(crate) fn preflight<B>(&self, request: &Request<B>) -> Option<Response<Full<Bytes>>> {
        let headers = request.headers();
        let method = headers.get(ACCESS_CONTROL_REQUEST_METHOD)?;
        let origin = headers.get(ORIGIN)?;
        if request.method() != Method::OPTIONS {
            return None;
        }
        let mut response = Response::new(Full::default());
        *response.status_mut() = StatusCode::NO_CONTENT;
        let answer = response.headers_mut();
        answer.insert(
            VARY,
            HeaderValue::from_static(
                "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
            ),
        );
        let requested = headers.get(ACCESS_CONTROL_REQUEST_HEADERS);
        let allowed = method.as_bytes() == b"POST"
            && self.allows_headers(requested)
            && self.allow_origin(origin, answer);
        if allowed {
            answer.insert(
                ACCESS_CONTROL_ALLOW_METHODS,
                HeaderValue::from_static("POST"),
            );
            if let Some(requested) = requested {
                answer.insert(ACCESS_CONTROL_ALLOW_HEADERS, requested.clone());
            }
            if let Some(max_age) = &self.max_age {
                answer.insert(ACCESS_CONTROL_MAX_AGE, max_age.clone());
            }
        }
        Some(response)
    }

    /// Adds the headers with which a browser passes the response to the script.
    pub(crate) fn apply(&self, origin: Option<&HeaderValue>, answer: &mut HeaderMap) {
        answer.append(VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = origin
            && self.allow_origin(origin, answer)
            && let Some(expose) = &self.expose
        {
            answer.insert(ACCESS_CONTROL_EXPOSE_HEADERS, expose.clone());
        }
    }

    /// Allows a configured origin. For `*`, the Collector also allows credentials, and browsers reject the combination.
    /// Here `*` excludes credentials.
    fn allow_origin(&self, origin: &HeaderValue, answer: &mut HeaderMap) -> bool {
        let Ok(text) = origin.to_str() else {
            return false;
        };
        let text = text.to_ascii_lowercase();
        let named = |pattern: &&String| *pattern != "*" && matches(pattern, &text);
        if self.origins.iter().find(named).is_some() {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            answer.insert(
                ACCESS_CONTROL_ALLOW_CREDENTIALS,
                HeaderValue::from_static("true"),
            );
            return true;
        }
        let any = self.origins.iter().any(|pattern| pattern == "*");
        if any {
            answer.insert(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"));
        }
        any
    }

    fn allows_headers(&self, requested: Option<&HeaderValue>) -> bool {
        let (Some(allowed), Some(requested)) = (&self.headers, requested) else {
            return true;
        };
        requested.to_str().is_ok_and(|requested| {
            requested.split(',').all(|name| {
                let name = name.trim();
                name.is_empty() || allowed.iter().any(|known| known.eq_ignore_ascii_case(name))
            })
        })
    }
}

/// Whether `text` matches `pattern`, in which each `*` matches any text.
fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// Headers that are always allowed, as in the Collector's library.
const ALWAYS_ALLOWED: [&str; 4] = ["accept", "content-type", "x-requested-with", "origin"];

impl Validate for Cors {
    fn validate(&self, problems: &mut Problems) {
        for (key, names) in [
            ("allowed_headers", &self.allowed_headers),
            ("exposed_headers", &self.exposed_headers),
        ] {
            for (at, name) in names.iter().enumerate() {
                if HeaderName::try_from(name).is_err() {
                    problems.error(
                        &[key, &at.to_string()],
                        format!("`{name}` is not a header name"),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn star_matches_any_text() {
        for (pattern, text, expected) in [
            ("https://a.com", "https://a.com", true),
            ("https://a.com", "https://a.com.evil", false),
            ("https://*.a.com", "https://x.y.a.com", true),
            ("https://*.a.com", "https://a.com", false),
            ("https://*.a.com", "https://evil.com/.a.com", true),
            ("http*://*.a.*", "https://b.a.com", true),
            ("ab*ba", "aba", false),
            ("*", "anything", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
