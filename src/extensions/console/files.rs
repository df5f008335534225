//! The files of the page, embedded in the binary.

use std::io::Write as _;
use std::sync::OnceLock;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;

pub(super) struct PageFile {
    name: &'static str,
    pub(super) content_type: &'static str,
    /// The content as it is in the repository.
    pub(super) content: &'static [u8],
    gzip: OnceLock<Bytes>,
}

const HTML: &str = "text/html; charset=utf-8";
const CSS: &str = "text/css; charset=utf-8";
const JAVASCRIPT: &str = "text/javascript; charset=utf-8";

/// Lists files of `page/` by name and media type.
macro_rules! page_files {
    ($($name:literal: $content_type:expr,)*) => {
        [$(PageFile {
            name: $name,
            content_type: $content_type,
            content: include_bytes!(concat!("page/", $name)),
            gzip: OnceLock::new(),
        },)*]
    };
}

static FILES: [PageFile; 22] = page_files! {
    "index.html": HTML,
    "style.css": CSS,
    "api.js": JAVASCRIPT,
    "box.js": JAVASCRIPT,
    "colors.js": JAVASCRIPT,
    "config.js": JAVASCRIPT,
    "dom.js": JAVASCRIPT,
    "flamegraph.js": JAVASCRIPT,
    "flameview.js": JAVASCRIPT,
    "format.js": JAVASCRIPT,
    "frames.js": JAVASCRIPT,
    "graph.js": JAVASCRIPT,
    "heatmap.js": JAVASCRIPT,
    "layout.js": JAVASCRIPT,
    "main.js": JAVASCRIPT,
    "pipeline.js": JAVASCRIPT,
    "plot.js": JAVASCRIPT,
    "profiles.js": JAVASCRIPT,
    "sandwich.js": JAVASCRIPT,
    "selection.js": JAVASCRIPT,
    "table.js": JAVASCRIPT,
    "timeline.js": JAVASCRIPT,
};

/// Returns the file for a path below the root of the page.
pub(super) fn find(path: &str) -> Option<&'static PageFile> {
    let name = match path {
        "" => "index.html",
        name => name,
    };
    FILES.iter().find(|file| file.name == name)
}

impl PageFile {
    /// Returns the content compressed with gzip. The first call compresses it.
    pub(super) fn gzip(&self) -> Bytes {
        let compress = || {
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            let written = encoder.write_all(self.content);
            // Writing to memory cannot fail.
            written
                .and_then(|()| encoder.finish())
                .unwrap_or_default()
                .into()
        };
        self.gzip.get_or_init(compress).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_files_are_all_served() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/src/extensions/console/page");
        let mut names = 0;
        for entry in std::fs::read_dir(directory).unwrap() {
            let name = entry.unwrap().file_name().into_string().unwrap();
            assert!(find(&name).is_some(), "{name} is not in FILES");
            names += 1;
        }
        assert_eq!(names, FILES.len());
        assert!(find("").is_some() && find("../console.rs").is_none());
    }

    #[test]
    fn page_stays_below_the_limit_of_its_size() {
        let total: usize = FILES.iter().map(|file| file.gzip().len()).sum();
        assert!(total < 50_000, "{total} bytes");
    }

    #[test]
    fn page_names_no_other_host() {
        for file in &FILES {
            let text = std::str::from_utf8(file.content).unwrap();
            for (at, _) in text.match_indices("://") {
                let rest = &text[at + 3..];
                let known = ["www.w3.org/", "localhost", "${host}"];
                let is_known = known.iter().any(|known| rest.starts_with(known));
                assert!(is_known, "{}: {}", file.name, &rest[..rest.len().min(40)]);
            }
        }
    }
}
