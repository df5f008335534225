//! Forms (`multipart/form-data`, RFC 7578) in memory. Parts are slices of the body.

use bytes::Bytes;
use memchr::memmem;

/// Maximum number of parts: agents send up to three.
const MAX_PARTS: usize = 16;
/// Maximum size of the headers of a part, in bytes.
const MAX_HEADERS: usize = 8 << 10;
/// Maximum length of a boundary (RFC 2046, 5.1.1).
const MAX_BOUNDARY: usize = 70;

/// A part of a form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Name of the field.
    pub name: String,
    /// Content of the field.
    pub data: Bytes,
}

/// The reason why a body is not a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FormError {
    /// The content type has no boundary, or one that is too long.
    #[error("the content type has no boundary of 1 to {MAX_BOUNDARY} characters")]
    Boundary,
    /// The body does not contain the boundary, or ends within a part.
    #[error("the form is truncated")]
    Truncated,
    /// The headers of a part are malformed or too long.
    #[error(
        "a part of the form has no usable header `Content-Disposition: form-data; name=\"...\"`"
    )]
    Headers,
    /// There are too many parts.
    #[error("the form has more than {MAX_PARTS} parts")]
    TooMany,
}

/// Whether a content type is that of a form.
pub fn is_form(content_type: &str) -> bool {
    essence(content_type).eq_ignore_ascii_case("multipart/form-data")
}

/// Returns a content type without its parameters.
pub fn essence(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}

/// Returns the parts of a form with this content type.
///
/// # Errors
/// See [`FormError`].
pub fn parts(content_type: &str, body: &Bytes) -> Result<Vec<Part>, FormError> {
    let boundary = parameter(content_type, "boundary").ok_or(FormError::Boundary)?;
    if boundary.is_empty() || boundary.len() > MAX_BOUNDARY {
        return Err(FormError::Boundary);
    }
    let delimiter = format!("\r\n--{boundary}");
    let finder = memmem::Finder::new(delimiter.as_bytes());
    // The first delimiter may be at the start of the body, without a line break.
    let mut at = match body.strip_prefix(delimiter.as_bytes().get(2..).unwrap_or_default()) {
        Some(rest) => body.len() - rest.len(),
        None => finder.find(body).ok_or(FormError::Truncated)? + delimiter.len(),
    };
    let mut parts = Vec::new();
    loop {
        let rest = body.get(at..).unwrap_or_default();
        if rest.starts_with(b"--") {
            return Ok(parts);
        }
        if parts.len() == MAX_PARTS {
            return Err(FormError::TooMany);
        }
        // Spaces may follow a delimiter (RFC 2046, 5.1.1).
        let line = memmem::find(rest, b"\r\n").ok_or(FormError::Truncated)?;
        let headers_at = at + line + 2;
        let rest = body.get(headers_at..).unwrap_or_default();
        let shown = rest.get(..MAX_HEADERS).unwrap_or(rest);
        let end = memmem::find(shown, b"\r\n\r\n").ok_or(FormError::Headers)?;
        let headers = shown.get(..end).unwrap_or_default();
        let name = str::from_utf8(headers).ok().and_then(field_name);
        let name = name.ok_or(FormError::Headers)?;
        let data_at = headers_at + end + 4;
        let rest = body.get(data_at..).unwrap_or_default();
        let length = match rest.starts_with(delimiter.as_bytes()) {
            true => 0,
            false => finder.find(rest).ok_or(FormError::Truncated)?,
        };
        parts.push(Part {
            name,
            data: body.slice(data_at..data_at + length),
        });
        at = data_at + length + delimiter.len();
    }
}

/// Returns the name of the field in the headers of a part.
fn field_name(headers: &str) -> Option<String> {
    let line = headers.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        let is = name.trim().eq_ignore_ascii_case("content-disposition");
        is.then_some(value)
    })?;
    parameter(line, "name").map(str::to_owned)
}

/// Returns the parameter of a header's value, with or without quotes.
fn parameter<'h>(value: &'h str, name: &str) -> Option<&'h str> {
    let mut rest = value;
    while let Some((_, after)) = rest.split_once(';') {
        let (key, value) = after.split_once('=')?;
        let (found, after) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"')?,
            None => value.split_at(value.find(';').unwrap_or(value.len())),
        };
        if key.trim().eq_ignore_ascii_case(name) {
            return Some(found.trim());
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    const TYPE: &str = "multipart/form-data; boundary=xyz";

    fn read(body: &str) -> Result<Vec<(String, String)>, FormError> {
        let parts = parts(TYPE, &Bytes::copy_from_slice(body.as_bytes()))?;
        let text = |part: Part| (part.name, String::from_utf8(part.data.to_vec()).unwrap());
        Ok(parts.into_iter().map(text).collect())
    }

    fn pair(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    #[test]
    fn parts_are_found_with_their_names() {
        let body = "preamble\r\n--xyz\r\nContent-Disposition: form-data; name=\"profile\"; filename=\"a;b.pprof\"\r\n\
            Content-Type: application/octet-stream\r\n\r\n\r\n--xy\r\n--xyz  \r\n\
            content-disposition:form-data;filename=x; name=sample_type_config\r\n\r\n{}\r\n--xyz--\r\nepilogue";
        let expected = [
            pair("profile", "\r\n--xy"),
            pair("sample_type_config", "{}"),
        ];
        assert_eq!(read(body).unwrap(), expected);
        let first = "--xyz\r\nContent-Disposition: form-data; name=\"jfr\"\r\n\r\n\r\n--xyz--";
        assert_eq!(read(first).unwrap(), [pair("jfr", "")]);
        assert_eq!(read("--xyz--").unwrap(), []);
    }

    #[test]
    fn content_type_is_read_with_quotes_and_in_any_case() {
        assert!(is_form("Multipart/Form-Data; boundary=a"));
        assert!(!is_form("multipart/mixed; boundary=a"));
        let body = Bytes::from_static(b"--a b\r\n--a b--");
        let error = parts(
            "multipart/form-data; charset=utf-8; boundary=\"a b\"",
            &body,
        );
        assert_eq!(error, Err(FormError::Headers));
        assert_eq!(
            parts("multipart/form-data", &body),
            Err(FormError::Boundary)
        );
    }

    #[test]
    fn malformed_forms_are_refused() {
        let head = "--xyz\r\nContent-Disposition: form-data; name=a\r\n\r\n";
        for (body, error) in [
            ("", FormError::Truncated),
            ("no form", FormError::Truncated),
            ("--xyz", FormError::Truncated),
            ("--xyz\r\nName: a\r\n\r\n--xyz--", FormError::Headers),
            (head, FormError::Truncated),
            (&format!("{head}data"), FormError::Truncated),
            (
                &format!("{head}\r\n").repeat(MAX_PARTS + 1),
                FormError::TooMany,
            ),
        ] {
            assert_eq!(read(body), Err(error), "{body}");
        }
        let long = format!("--xyz\r\nX: {}\r\n\r\n\r\n--xyz--", "x".repeat(MAX_HEADERS));
        assert_eq!(read(&long), Err(FormError::Headers));
    }
}
