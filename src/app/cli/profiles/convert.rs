//! `collector profiles convert` and `collector profiles merge`.

use std::path::{Path, PathBuf};

use super::output::Format;
use super::{Done, load, output};
use crate::profile_files::FileKind;
use tributary_profile_formats as formats;

pub(super) fn convert(file: &Path, reading: &load::Reading, output: &output::Arguments) -> Done {
    let loaded = load::load(file, reading)?;
    let written = output.write(&loaded, &reading.labels.links(), None)?;
    Ok((written, loaded.notes))
}

pub(super) fn merge(
    files: &[PathBuf],
    reading: &load::Reading,
    output: &output::Arguments,
) -> Done {
    let loaded = load::merge(files, reading)?;
    let format = match loaded.kind {
        FileKind::Otlp => Format::Otlp,
        FileKind::OtlpJson => Format::OtlpJson,
        FileKind::Pprof => Format::Pprof,
        FileKind::Foreign(formats::Format::Folded) => Format::Folded,
        // Other formats have no writer.
        FileKind::Foreign(_) => Format::Otlp,
    };
    let written = output.write(&loaded, &reading.labels.links(), Some(format))?;
    Ok((written, loaded.notes))
}
