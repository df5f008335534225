//! `env`: attributes from `OTEL_RESOURCE_ATTRIBUTES`.

use regex::Regex;

use crate::attributes::{AttributeValue, DetectedResource};
use crate::{Detection, DetectionError};

/// A pair of key and value. Superfluous spaces are ignored. The Collector's detector has the same grammar.
const PAIR: &str = r"(?-u:\s*([[:ascii:]]{1,256}?)\s*=\s*([[:ascii:]]{0,256}?)\s*)(?:,|$)";

/// Returns the attributes of the environment variable; of `OTEL_RESOURCE`, its former name, if there is none.
pub(crate) fn detect(detection: &Detection<'_>) -> Result<DetectedResource, DetectionError> {
    let text = |name| detection.machine.variable(name).map_or("", str::trim);
    let text = match text("OTEL_RESOURCE_ATTRIBUTES") {
        "" => text("OTEL_RESOURCE"),
        text => text,
    };
    let mut found = DetectedResource::default();
    if text.is_empty() {
        return Ok(found);
    }
    let filter = &detection.config.env.attributes;
    for (key, value) in pairs(text).map_err(DetectionError)? {
        if filter.selects(&key) {
            let other = DetectedResource {
                attributes: vec![(key, AttributeValue::Text(value))],
                schema_url: String::new(),
            };
            found.complement(other);
        }
    }
    Ok(found)
}

/// Parses pairs. If a key occurs twice, the last value comes first.
fn pairs(text: &str) -> Result<Vec<(String, String)>, String> {
    let invalid = |text: &str| {
        format!(
            "OTEL_RESOURCE_ATTRIBUTES is not a list of `key=value`, separated by commas: `{text}` is no such pair"
        )
    };
    let pair = Regex::new(PAIR).map_err(|error| error.to_string())?;
    let mut pairs = Vec::new();
    let mut end = 0;
    for captures in pair.captures_iter(text) {
        let (Some(all), Some(key), Some(value)) =
            (captures.get(0), captures.get(1), captures.get(2))
        else {
            continue;
        };
        if all.start() != end {
            return Err(invalid(text.get(end..all.start()).unwrap_or_default()));
        }
        end = all.end();
        let value = unescape(value.as_str()).ok_or_else(|| invalid(all.as_str()))?;
        pairs.push((key.as_str().to_owned(), value));
    }
    if end != text.len() {
        return Err(invalid(text.get(end..).unwrap_or_default()));
    }
    pairs.reverse();
    Ok(pairs)
}

/// Decodes `%XX`, and `+` as a space; `None` if the text has an invalid escape.
fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use crate::BuiltInDetector::Env;
    use crate::testing::{Fixture, text_pairs};

    #[tokio::test]
    async fn variable_has_escaped_pairs() {
        let fixture = Fixture::new(&[(
            "OTEL_RESOURCE_ATTRIBUTES",
            " service.name = shop , a=b=c,empty=,city=a%2Cb+c,a=last ",
        )]);
        let found = fixture.detect(Env).await.unwrap();
        assert_eq!(
            text_pairs(&found),
            [
                ("a", "last"),
                ("city", "a,b c"),
                ("empty", ""),
                ("service.name", "shop")
            ]
        );
        assert_eq!(found.schema_url, "");
    }

    #[tokio::test]
    async fn former_variable_is_read_if_the_variable_is_empty() {
        let fixture = Fixture::new(&[("OTEL_RESOURCE_ATTRIBUTES", " "), ("OTEL_RESOURCE", "a=b")]);
        let found = fixture.detect(Env).await.unwrap();
        assert_eq!(text_pairs(&found), [("a", "b")]);
    }

    #[tokio::test]
    async fn text_without_pairs_is_an_error() {
        for text in ["shop", "a=b,shop", "a=%zz", "a=%f"] {
            let fixture = Fixture::new(&[("OTEL_RESOURCE_ATTRIBUTES", text)]);
            let error = fixture.detect(Env).await.unwrap_err().to_string();
            assert!(
                error.starts_with("OTEL_RESOURCE_ATTRIBUTES is not"),
                "{error}"
            );
        }
    }

    #[tokio::test]
    async fn lists_of_keys_select_attributes() {
        let mut fixture =
            Fixture::new(&[("OTEL_RESOURCE_ATTRIBUTES", "k8s.a=1,k8s.pod.name=2,z=3")]);
        let attributes = &mut fixture.config.env.attributes;
        attributes.included = vec!["k8s.*".to_owned()];
        attributes.excluded = vec!["k8s.pod.nam?".to_owned()];
        let found = fixture.detect(Env).await.unwrap();
        assert_eq!(text_pairs(&found), [("k8s.a", "1")]);
    }
}
