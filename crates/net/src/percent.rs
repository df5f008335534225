//! Percent-encoding (RFC 3986, section 2.1).

/// Decodes a text. Returns `None` if two hexadecimal digits do not follow each `%`.
pub fn percent_decoded(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let high = char::from(bytes.next()?).to_digit(16)?;
        let low = char::from(bytes.next()?).to_digit(16)?;
        out.push(u8::try_from(high * 16 + low).ok()?);
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_are_decoded_and_incomplete_ones_refused() {
        assert_eq!(
            percent_decoded("a%20%c3%A4").unwrap(),
            "a \u{e4}".as_bytes()
        );
        assert_eq!(percent_decoded("").unwrap(), b"");
        for wrong in ["%", "%2", "%zz"] {
            assert_eq!(percent_decoded(wrong), None, "{wrong}");
        }
    }
}
