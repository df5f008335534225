//! Profiles of a running collector's stores, selected by a query in place of a file name.

use std::path::Path;

use clap::Args;

/// Options for queries.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Queries")]
pub(in crate::app::cli) struct Selection {
    /// URL of the console extension that answers queries. A query in place of a file selects stored profiles, as in
    /// '{service_name="cart"}' or '{version="1.4"}@now-2h..now-1h'. Default: http://localhost:55679/.
    #[arg(long, value_name = "URL")]
    console: Option<String>,
    /// Sample type of a query, as in `cpu`. Required if the selected series have several.
    #[arg(long, value_name = "TYPE")]
    query_type: Option<String>,
}

const CONSOLE: &str = "http://localhost:55679/";

impl Selection {
    /// Returns the URL of the selected profiles if `file` is a query instead of a file name.
    ///
    /// # Errors
    /// The range of the query is malformed.
    pub(super) fn url(&self, file: &Path) -> Result<Option<String>, String> {
        let Some(text) = file.to_str().filter(|text| text.starts_with('{')) else {
            return Ok(None);
        };
        let (query, range) = match text.rsplit_once("}@") {
            Some((query, range)) => (format!("{query}}}"), Some(range)),
            None => (text.to_owned(), None),
        };
        let console = self.console.as_deref().unwrap_or(CONSOLE);
        let mut url = format!(
            "{}/api/v1/profiles/download?format=pprof&query={}",
            console.trim_end_matches('/'),
            encoded(&query)
        );
        if let Some(range) = range {
            let (from, until) = range
                .split_once("..")
                .ok_or("the range of a query is written as @FROM..UNTIL, as in @now-2h..now-1h")?;
            url.push_str(&format!("&from={}&until={}", encoded(from), encoded(until)));
        }
        if let Some(query_type) = &self.query_type {
            url.push_str(&format!("&type={}", encoded(query_type)));
        }
        Ok(Some(url))
    }
}

/// Percent-encodes a value of a URL's query.
fn encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(selection: &Selection, text: &str) -> Result<Option<String>, String> {
        selection.url(Path::new(text))
    }

    #[test]
    fn query_becomes_the_url_of_its_profiles() {
        let selection = Selection::default();
        assert_eq!(url(&selection, "cpu.pb.gz"), Ok(None));
        assert_eq!(
            url(&selection, "{service_name=\"a b\"}").unwrap().unwrap(),
            "http://localhost:55679/api/v1/profiles/download?format=pprof&query=%7Bservice_name%3D%22a%20b%22%7D"
        );
        let selection = Selection {
            console: Some("https://rack:1/prefix/".to_owned()),
            query_type: Some("cpu".to_owned()),
        };
        assert_eq!(
            url(&selection, "{}@now-2h..now-1h").unwrap().unwrap(),
            "https://rack:1/prefix/api/v1/profiles/download?format=pprof&query=%7B%7D&from=now-2h&until=now-1h&type=cpu"
        );
        assert!(url(&selection, "{}@now-2h").is_err());
    }
}
