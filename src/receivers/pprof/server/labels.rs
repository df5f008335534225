//! Labels of a pprof file, from the query of its request.

use std::sync::Arc;

use opentelemetry_proto::tonic::common::v1::KeyValue;

use crate::pipeline::batch::Nack;
use crate::receivers::profile_intake::text;
use crate::serving::query::decode;

/// Description of a file.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Labels {
    /// Resource attributes.
    pub(super) attributes: Vec<KeyValue>,
    /// Name of the profile at its source, such as `heap` or `mutex`.
    pub(super) profile: Option<Arc<str>>,
}

/// Parses a query (`application/x-www-form-urlencoded`): every parameter is a resource attribute
/// with a text value, except `profile`, which names the profile. At most [`MAX_PARAMETERS`] parameters are
/// allowed, each with at most [`MAX_KEY_LENGTH`] and [`MAX_VALUE_LENGTH`] bytes. Parameters without a
/// value are ignored.
///
/// # Errors
/// Returns a refusal that names the invalid parameter and the reason.
pub(super) fn labels(query: &str) -> Result<Labels, Nack> {
    let mut labels = Labels::default();
    let parameters = query.split('&').filter(|parameter| !parameter.is_empty());
    for (at, parameter) in parameters.enumerate() {
        let number = at + 1;
        let wrong = |why: &str| Nack::invalid(format!("parameter {number} of the query {why}"));
        if at == MAX_PARAMETERS {
            let why = format!("the query has more than {MAX_PARAMETERS} parameters; send fewer");
            return Err(Nack::invalid(why));
        }
        let (key, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        let decode = |part: &str, most: usize| {
            let decoded = decode(part).ok_or_else(|| wrong("is not percent-encoded UTF-8"))?;
            match decoded.len() <= most {
                true => Ok(decoded),
                false => Err(wrong(&format!("is longer than {most} bytes"))),
            }
        };
        let (key, value) = (
            decode(key, MAX_KEY_LENGTH)?,
            decode(value, MAX_VALUE_LENGTH)?,
        );
        if key.is_empty() || key.chars().any(char::is_control) {
            return Err(wrong(
                "has an empty name, or a name with control characters",
            ));
        }
        let known = labels.attributes.iter().any(|known| known.key == key);
        if known || key == PROFILE && labels.profile.is_some() {
            return Err(wrong(&format!("repeats `{key}`")));
        }
        match (key.as_str(), value.is_empty()) {
            (_, true) => {}
            (PROFILE, false) => labels.profile = Some(value.into()),
            (_, false) => labels.attributes.push(text(&key, &value)),
        }
    }
    Ok(labels)
}

/// Parameter that does not become an attribute.
const PROFILE: &str = "profile";
/// Maximum number of parameters in a query.
const MAX_PARAMETERS: usize = 32;
/// Maximum length of a decoded name in bytes.
const MAX_KEY_LENGTH: usize = 128;
/// Maximum length of a decoded value in bytes.
const MAX_VALUE_LENGTH: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(query: &str) -> String {
        labels(query).unwrap_err().reason.into_owned()
    }

    #[test]
    fn parameters_except_profile_are_attributes() {
        let found = labels("service.name=a+b&&profile=mutex&k%3D=%C3%A9%2B=&empty=&bare").unwrap();
        let expected = Labels {
            attributes: vec![text("service.name", "a b"), text("k=", "\u{e9}+=")],
            profile: Some("mutex".into()),
        };
        assert_eq!(found, expected);
        assert_eq!(labels("").unwrap(), Labels::default());
    }

    #[test]
    fn invalid_query_error_names_parameter() {
        for (query, reason) in [
            (
                "a=1&b=%zz",
                "parameter 2 of the query is not percent-encoded UTF-8",
            ),
            (
                "a=%f",
                "parameter 1 of the query is not percent-encoded UTF-8",
            ),
            (
                "a=%ff",
                "parameter 1 of the query is not percent-encoded UTF-8",
            ),
            (
                "=1",
                "parameter 1 of the query has an empty name, or a name with control characters",
            ),
            (
                "a%0A=1",
                "parameter 1 of the query has an empty name, or a name with control characters",
            ),
            ("a=1&a=2", "parameter 2 of the query repeats `a`"),
            (
                "profile=1&profile=2",
                "parameter 2 of the query repeats `profile`",
            ),
        ] {
            assert_eq!(refusal(query), reason, "{query}");
        }
    }

    #[test]
    fn query_is_bounded_in_number_and_length() {
        let many = |count: usize| {
            let parameters: Vec<String> = (0..count).map(|at| format!("k{at}=v")).collect();
            parameters.join("&")
        };
        assert_eq!(
            labels(&many(MAX_PARAMETERS)).unwrap().attributes.len(),
            MAX_PARAMETERS
        );
        assert!(refusal(&many(MAX_PARAMETERS + 1)).contains("more than 32 parameters"));
        assert!(labels(&format!("{}={}", "k".repeat(128), "v".repeat(1024))).is_ok());
        assert!(refusal(&format!("{}=v", "k".repeat(129))).contains("longer than 128 bytes"));
        assert!(refusal(&format!("k={}", "v".repeat(1025))).contains("longer than 1024 bytes"));
    }
}
