//! `collector health`: checks the health of a running collector.

use serde_json::{Value, json};

use super::fetch::Fetching;
use super::options::Shape;
use super::{Failure, pretty, printable};

/// Maximum length of a response, in bytes. The response has a line for every failing exporter.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;

/// Returns the response of the collector's `health_check` extension, and the exit code.
pub(super) fn ask(url: &str, shape: Shape, fetching: &Fetching) -> Result<(String, u8), Failure> {
    let answer = fetching.fetch(url, MAX_RESPONSE_BYTES);
    if shape.json {
        return as_json(url, answer);
    }
    match answer {
        Ok(answer) => {
            let text = printable(String::from_utf8_lossy(&answer).trim_end());
            Ok((text + "\n", 0))
        }
        Err(error) => Err(Failure {
            code: 1,
            text: format!("error: {url}: {error}\n"),
        }),
    }
}

/// Formats the response as JSON. The response is JSON already unless `response_body` is configured.
fn as_json(url: &str, answer: Result<Vec<u8>, String>) -> Result<(String, u8), Failure> {
    let (healthy, key, value) = match answer {
        Ok(answer) => {
            let text = || Value::from(String::from_utf8_lossy(&answer).trim_end());
            let value = serde_json::from_slice(&answer).unwrap_or_else(|_| text());
            (true, "answer", value)
        }
        Err(error) => (false, "error", error.into()),
    };
    let text = pretty(&json!({"url": url, "healthy": healthy, key: value}))?;
    Ok((text, u8::from(!healthy)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_as_json_keeps_its_structure() {
        let (text, code) = as_json("http://a/", Ok(br#"{"status": "OK"}"#.to_vec()))
            .ok()
            .unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((code, &value["answer"]["status"]), (0, &json!("OK")));
        let (text, code) = as_json("http://a/", Err("503".to_owned())).ok().unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (code, &value["healthy"], &value["error"]),
            (1, &json!(false), &json!("503"))
        );
    }
}
