//! Profiles as files.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};

use super::error::ApiError;
use super::flame::Shown;
use super::params::{Params, Side};
use super::{Asked, response};
use tributary_compression::Codec;
use tributary_compression::compress::Compressor;
use tributary_profile_store::svg::{Appearance, draw};
use tributary_profile_store::{QueryAnswer, html};

/// Default number of frames of a picture. A browser lays so many out without a delay.
const FRAMES: usize = 20_000;
/// Default width of an SVG picture, in pixels.
const WIDTH: usize = 1200;
/// Bytes of a frame in a file of speedscope: a number in memory, its digits, and a comma.
const SPEEDSCOPE_FRAME: u64 = 12;

const FORMATS: [&str; 6] = ["pprof", "folded", "svg", "html", "speedscope", "json"];

pub(super) fn download(asked: &Asked, params: &Params) -> Result<Response<Bytes>, ApiError> {
    let format = params.word("format", &FORMATS)?;
    match format {
        "svg" | "html" | "json" => picture(asked, params, format),
        _ if params.compares() => Err(ApiError::bad(format!(
            "`{format}` does not support comparisons: remove `before_*`, or use svg, html or json"
        ))),
        _ => profile(asked, params, format),
    }
}

fn picture(asked: &Asked, params: &Params, format: &str) -> Result<Response<Bytes>, ApiError> {
    let shown = asked.shown(params, params.compares())?;
    if format == "json" {
        return Ok(attached(shown.flamegraph(params)?, "profile.json"));
    }
    let view = shown.view(params, FRAMES)?;
    if view.frames.is_empty() {
        return Err(nothing());
    }
    let comparison = shown.compares.then_some(shown.scales);
    let title = title(params, &shown);
    let (content_type, name, text) = if format == "svg" {
        let width = params.number("width", WIDTH, 100..10_001)?;
        let appearance = Appearance {
            title,
            width: u32::try_from(width).unwrap_or(u32::MAX),
            comparison,
        };
        ("image/svg+xml", "profile.svg", draw(&view, &appearance))
    } else {
        let page = html::page(&view, &title, comparison)
            .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        ("text/html; charset=utf-8", "profile.html", page)
    };
    let answer = response(StatusCode::OK, content_type, text.into());
    Ok(attached(answer, name))
}

fn profile(asked: &Asked, params: &Params, format: &str) -> Result<Response<Bytes>, ApiError> {
    let query = asked.query(params, Side::Selected)?;
    let answer = asked.store(params)?.merge(&query)?;
    let mut answer = answer.ok_or_else(nothing)?;
    let (content_type, name, body) = match format {
        "folded" => {
            let size = answer.tree()?.stack_size();
            // A text of each stack, and the whole text.
            reserve(
                &mut answer,
                size.text.saturating_add(size.frames).saturating_mul(2),
            )?;
            let text = answer.folded();
            ("text/plain; charset=utf-8", "profile.folded", text.into())
        }
        "speedscope" => {
            let tree = answer.tree()?;
            let frames = tree.stack_size().frames;
            reserve(&mut answer, frames.saturating_mul(SPEEDSCOPE_FRAME))?;
            let title = params.get("title").unwrap_or("profile");
            let text = tree.speedscope(title);
            ("application/json", "profile.speedscope.json", text.into())
        }
        _ => {
            let file = Bytes::from(answer.pprof());
            let compressed = Compressor::new(Codec::Gzip, None).compress(&[file]);
            let compressed = compressed.map_err(|error| {
                ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string())
            })?;
            ("application/octet-stream", "profile.pb.gz", compressed)
        }
    };
    let answer = response(StatusCode::OK, content_type, body);
    Ok(attached(answer, name))
}

fn reserve(answer: &mut QueryAnswer, bytes: u64) -> Result<(), ApiError> {
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let reserved = answer.meter()(bytes);
    Ok(reserved?)
}

fn title(params: &Params, shown: &Shown) -> String {
    let title = params.get("title").or_else(|| params.get("query"));
    match title {
        Some(title) => title.to_owned(),
        None => shown.tree.sample_type.0.clone(),
    }
}

fn nothing() -> ApiError {
    ApiError::not_found("the selection has no profiles: change the range or the series")
}

/// Makes a response a file, which a browser saves.
fn attached(mut response: Response<Bytes>, name: &str) -> Response<Bytes> {
    let disposition = format!("attachment; filename=\"{name}\"");
    if let Ok(disposition) = HeaderValue::try_from(disposition) {
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_DISPOSITION, disposition);
    }
    response
}
