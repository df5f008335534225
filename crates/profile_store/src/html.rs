//! Flame graphs as one HTML file, with zoom, search and keyboard control. The file works without a server, and sends no
//! data.
//!
//! The policy in the file allows the script and the style of the file, and no request. Names are data of the file,
//! never markup.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ring::digest::{SHA256, digest};
use serde::Serialize;

use super::text::{escaped, shortened, visible};
use super::view::{FlameScales, FlameView};

const SCRIPT: &str = include_str!("html/page.js");
const STYLE: &str = include_str!("html/page.css");
/// Maximum length of the title, in characters.
const LONGEST_TITLE: usize = 200;

#[derive(Serialize)]
struct Data<'v> {
    #[serde(flatten)]
    view: &'v FlameView,
    scales: FlameScales,
    compares: bool,
}

/// Writes a view as a page. `comparison` has the factors of the values, if the view compares two profiles.
///
/// # Errors
/// The view is not JSON, because a weight is not a number.
pub fn page(
    view: &FlameView,
    title: &str,
    comparison: Option<FlameScales>,
) -> Result<String, serde_json::Error> {
    let data = serde_json::to_string(&Data {
        view,
        scales: comparison.unwrap_or([1.0; 2]),
        compares: comparison.is_some(),
    })?;
    // `</script>` or `<!--` in a name would end the data.
    let data = data.replace('<', "\\u003c");
    let title = escaped(&shortened(&visible(title), LONGEST_TITLE));
    let columns = match comparison {
        None => ["self", "share"],
        Some(_) => ["self before", "self after"],
    };
    let [first, second] = columns;
    let (script, style) = (hash(SCRIPT), hash(STYLE));
    Ok(format!(
        r#"<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; script-src '{script}'; style-src '{style}'">
<title>{title}</title>
<style>{STYLE}</style>
</head>
<body>
<header>
<h1>{title}</h1>
<input id="search" type="search" placeholder="search (regular expression)" aria-label="search" spellcheck="false">
<button id="reset" type="button">Whole graph</button>
<button id="theme" type="button">Dark or light</button>
</header>
<div id="about" role="status"></div>
<div id="found" role="status"></div>
<canvas id="graph" tabindex="0" role="img" aria-describedby="help"></canvas>
<details>
<summary>Table and keys</summary>
<p id="help">Arrows move, Enter zooms in, Backspace zooms out, Escape shows the whole graph, / searches.</p>
<table><thead><tr><th>{first}</th><th>{second}</th><th>function</th></tr></thead><tbody id="rows"></tbody></table>
</details>
<script id="profile" type="application/json">{data}</script>
<script>{SCRIPT}</script>
</body>
</html>
"#
    ))
}

fn hash(text: &str) -> String {
    let hash = digest(&SHA256, text.as_bytes());
    format!("sha256-{}", STANDARD.encode(hash))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::tests::tree;
    use crate::view::Zoom;

    #[test]
    fn hostile_names_are_escaped_in_html() {
        let stacks = "main;</script><script>alert(1)</script> 1\nmain;<!-- 2\nmain;\u{202e}x\0 3\n";
        let view = tree(stacks).view(&Zoom::default(), 100, [1.0; 2]).unwrap();
        let page = page(&view, "</title><b>\u{202e}", Some([1.0, 2.0])).unwrap();
        assert_eq!(page.matches("<script").count(), 2);
        assert_eq!(page.matches("</script>").count(), 2);
        assert!(!page.contains("<b>") && !page.contains("<!--") && !page.contains('\0'));
        let begin = page.find("application/json\">").unwrap() + "application/json\">".len();
        let end = begin + page[begin..].find('<').unwrap();
        let data: serde_json::Value = serde_json::from_str(&page[begin..end]).unwrap();
        let names = data["names"].as_array().unwrap();
        assert!(
            names
                .iter()
                .any(|name| name == "</script><script>alert(1)</script>")
        );
        assert_eq!(data["compares"], true);
    }

    #[test]
    fn page_requests_no_other_host() {
        let view = tree("main 1\n")
            .view(&Zoom::default(), 100, [1.0; 2])
            .unwrap();
        let page = page(&view, "a", None).unwrap();
        for wrong in [
            "http:",
            "https:",
            "src=",
            "@import",
            "url(",
            "unsafe-inline",
        ] {
            assert!(!page.contains(wrong), "{wrong}");
        }
        assert!(page.len() < 30_000, "{}", page.len());
    }
}
