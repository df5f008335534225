//! `collector profiles flamegraph`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::{Done, load, output};
use tributary_profile_store::svg::{Appearance, draw};
use tributary_profile_store::view::{FlameScales, FlameView};
use tributary_profile_store::{Tree, Zoom, html};
use tributary_profiles::dictionary::ValueType;

/// Width of an SVG picture, in pixels.
const WIDTH: u32 = 1200;
/// Default maximum number of frames in a picture. A browser lays so many out without a delay.
pub(super) const MAX_FRAMES: usize = 20_000;

#[derive(Debug, Args)]
pub(in crate::app::cli) struct Arguments {
    /// Input: a file, optionally compressed with gzip, or a URL; `-` is stdin.
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Output file. Default: stdout.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Output format. Default: by the extension of the name after -o (`.svg`, `.html`,
    /// `.speedscope.json`).
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Option<Picture>,
    /// Sample type to show, such as `cpu`. Default: the default sample type of the profile, else
    /// the last sample type of a pprof file.
    #[arg(long, value_name = "NAME")]
    sample_type: Option<String>,
    /// Maximum number of frames in a picture. The lightest ones are shown as `(N more)`.
    #[arg(long, value_name = "COUNT", default_value_t = MAX_FRAMES)]
    max_frames: usize,
    /// Function to zoom to, by its path from the root, with `;` between functions.
    #[arg(long, value_name = "PATH")]
    zoom: Option<String>,
    #[command(flatten)]
    reading: load::Reading,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Picture {
    /// A picture without scripts.
    Svg,
    /// A page with zoom and search, which needs no server.
    Html,
    /// A file for <https://www.speedscope.app>; has all frames.
    Speedscope,
}

pub(super) fn flamegraph(arguments: &Arguments) -> Done {
    let name = arguments.output.as_deref();
    let Some(format) = arguments.to.or_else(|| name.and_then(by_name)) else {
        return Err("the output format is missing: add --to svg, html or speedscope".to_owned());
    };
    let loaded = load::load(&arguments.file, &arguments.reading)?;
    let kind = output::kind(&loaded, arguments.sample_type.as_deref())?;
    let tree = Tree::of(&loaded.profiles, kind);
    let title = format!("{}: {}", loaded.name, tree.sample_type.0);
    let text = match format {
        Picture::Speedscope => tree.speedscope(&title),
        Picture::Svg => {
            let appearance = Appearance {
                title,
                width: WIDTH,
                comparison: None,
            };
            draw(&arguments.view(&tree)?, &appearance)
        }
        Picture::Html => page(&arguments.view(&tree)?, &title, None)?,
    };
    match name {
        None => Ok((text.into_bytes(), loaded.notes)),
        Some(name) => {
            output::save(name, text.as_bytes())?;
            Ok((Vec::new(), loaded.notes))
        }
    }
}

impl Arguments {
    fn view(&self, tree: &Tree) -> Result<FlameView, String> {
        let path = self.zoom.as_deref().unwrap_or_default();
        let names = path.split(';').filter(|name| !name.is_empty());
        let zoom = Zoom {
            path: names.map(str::to_owned).collect(),
            skip: 0,
        };
        let view = tree.view(&zoom, self.max_frames, [1.0; 2]);
        view.ok_or_else(|| {
            format!("no function has the call path `{path}`: write the path from the root, such as `main;run`")
        })
    }
}

/// Returns a page with the flame graph of two measurements.
pub(super) fn comparison(
    [before, after]: [(&load::Loaded, ValueType); 2],
    scales: FlameScales,
    max_frames: usize,
) -> Result<String, String> {
    let tree = Tree::of_both((&before.0.profiles, before.1), (&after.0.profiles, after.1));
    let view = tree.view(&Zoom::default(), max_frames, scales);
    let title = format!("{} -> {}", before.0.name, after.0.name);
    page(&view.unwrap_or_default(), &title, Some(scales))
}

fn page(view: &FlameView, title: &str, comparison: Option<FlameScales>) -> Result<String, String> {
    html::page(view, title, comparison).map_err(|error| error.to_string())
}

fn by_name(file: &Path) -> Option<Picture> {
    let name = file.file_name()?.to_str()?;
    let endings = [
        (".svg", Picture::Svg),
        (".html", Picture::Html),
        (".speedscope.json", Picture::Speedscope),
    ];
    let found = endings.iter().find(|(ending, _)| name.ends_with(ending));
    found.map(|(_, picture)| *picture)
}
