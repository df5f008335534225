//! Flame graphs as SVG: one picture without scripts. The title of a frame has its whole text.

use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _};

use foldhash::fast::FixedState;

use super::text::{escaped, package, shortened, value, visible};
use super::view::{FlameFrame, FlameScales, FlameView};

/// Height of a frame, in pixels.
const ROW: usize = 17;
const FONT: f64 = 12.0;
/// Width of a character of the monospaced font, as a share of its size.
const CHARACTER: f64 = 0.6;
/// Width of the narrowest frame that is drawn, in pixels. Narrower frames would not be seen.
const MIN_WIDTH: f64 = 0.1;
/// Maximum length of a name in a title, in characters.
const LONGEST_NAME: usize = 1000;

/// Appearance of a picture.
#[derive(Debug, Clone, PartialEq)]
pub struct Appearance {
    /// Text above the picture.
    pub title: String,
    /// Width in pixels.
    pub width: u32,
    /// Factors of the values, if the picture compares two profiles.
    pub comparison: Option<FlameScales>,
}

/// Draws a view.
pub fn draw(view: &FlameView, appearance: &Appearance) -> String {
    let depths = view.depths();
    let places = view.places();
    let rows = depths.iter().max().map_or(1, |deepest| deepest + 1);
    let width = f64::from(appearance.width);
    let height = (rows + 2) * ROW;
    let mut svg = String::new();
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" font-family=\"monospace\" font-size=\"{FONT}\">"
    );
    let title = shortened(&visible(&appearance.title), LONGEST_NAME);
    let _ = writeln!(svg, "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>");
    let _ = writeln!(
        svg,
        "<text x=\"4\" y=\"{}\">{}</text>",
        ROW - 4,
        escaped(&title)
    );
    for ((frame, depth), (left, share)) in view.frames.iter().zip(depths).zip(places) {
        let wide = share * width;
        if wide < MIN_WIDTH {
            continue;
        }
        let (x, y) = (left * width, (depth + 1) * ROW);
        let label = label(view, frame);
        let about = about(view, frame, appearance.comparison);
        let fill = fill(view, frame, appearance.comparison);
        let _ = write!(
            svg,
            "<g><title>{}</title><rect x=\"{x:.2}\" y=\"{y}\" width=\"{wide:.2}\" height=\"{}\" \
             fill=\"{fill}\" rx=\"1\"/>",
            escaped(&format!("{} {about}", shortened(&label, LONGEST_NAME))),
            ROW - 1,
        );
        let fitting = ((wide - 6.0) / (FONT * CHARACTER)).max(0.0) as usize;
        let text = shortened(&label, fitting);
        if !text.is_empty() {
            let (x, y) = (x + 3.0, y + ROW - 5);
            let _ = write!(
                svg,
                "<text x=\"{x:.2}\" y=\"{y}\">{}</text>",
                escaped(&text)
            );
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}

fn label(view: &FlameView, frame: &FlameFrame) -> String {
    match (view.name(frame), frame.elided) {
        ("", 0) => "all".to_owned(),
        ("", 1) => "(1 more)".to_owned(),
        ("", count) => format!("({count} more)"),
        (name, _) => visible(name),
    }
}

fn about(view: &FlameView, frame: &FlameFrame, comparison: Option<FlameScales>) -> String {
    let part = |value: i64, total: i64| match total {
        0 => 0.0,
        total => value as f64 * 100.0 / total as f64,
    };
    let [before, after] = frame.total;
    let [all_before, all_after] = view.totals;
    let shown = |number: i64, scale: f64| value(number as f64 * scale, &view.unit);
    match comparison {
        None => {
            let share = part(before, all_before);
            format!("({}, {share:.2}%)", shown(before, 1.0))
        }
        Some([first, second]) => format!(
            "({} -> {}, {:.2}% -> {:.2}%)",
            shown(before, first),
            shown(after, second),
            part(before, all_before),
            part(after, all_after),
        ),
    }
}

/// Color of a frame: by package, or by the change of its value. Most color-blind people can distinguish blue and
/// orange.
fn fill(view: &FlameView, frame: &FlameFrame, comparison: Option<FlameScales>) -> String {
    if frame.elided > 0 {
        return "#d8d8d8".to_owned();
    }
    let Some([first, second]) = comparison else {
        let mut hasher = FixedState::default().build_hasher();
        hasher.write(package(view.name(frame)).as_bytes());
        let hash = hasher.finish();
        let (hue, lightness) = (hash % 55, 62 + hash / 55 % 14);
        return format!("hsl({hue},78%,{lightness}%)");
    };
    let (before, after) = (
        frame.total[0] as f64 * first,
        frame.total[1] as f64 * second,
    );
    let change = match before.abs().max(after.abs()) {
        0.0 => 0.0,
        larger => ((after - before) / larger).clamp(-1.0, 1.0),
    };
    let lightness = 94.0 - 34.0 * change.abs();
    let hue = if change < 0.0 { 210 } else { 28 };
    format!("hsl({hue},85%,{lightness:.0}%)")
}
