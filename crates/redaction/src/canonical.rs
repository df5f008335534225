//! Normal forms of hits, so that hits with the same meaning have equal hashes.

use std::net::IpAddr;

use super::catalogue::{Detector, DetectorId};

/// Returns the normal form of a hit for hashing: without separators and in one case, if these have no meaning. Hits of
/// custom detectors stay unchanged, because their meaning is unknown.
pub(super) fn canonical(id: DetectorId, text: &str) -> String {
    let is = |detector: Detector| detector.id() == id;
    let digits = || text.chars().filter(char::is_ascii_digit);
    let alphanumeric = || text.chars().filter(char::is_ascii_alphanumeric);
    if is(Detector::CreditCard) || is(Detector::UsSsn) {
        digits().collect()
    } else if is(Detector::Phone) {
        // `00` stands for `+`, and `(0)` is dialled only without a country code.
        let digits: String = text
            .replace("(0)", "")
            .chars()
            .filter(char::is_ascii_digit)
            .collect();
        match digits.strip_prefix("00") {
            Some(international) => international.to_owned(),
            None => digits,
        }
    } else if is(Detector::Iban) {
        alphanumeric().collect::<String>().to_ascii_uppercase()
    } else if is(Detector::MacAddress) {
        alphanumeric().collect::<String>().to_ascii_lowercase()
    } else if is(Detector::Email) {
        text.to_lowercase()
    } else if is(Detector::IpAddress) {
        let address = text.parse::<IpAddr>();
        address.map_or_else(|_| text.to_owned(), |address| address.to_string())
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_values_have_one_canonical_form() {
        for (detector, spellings) in [
            (
                Detector::CreditCard,
                [
                    "4111111111111111",
                    "4111 1111 1111 1111",
                    "4111-1111-1111-1111",
                ],
            ),
            (
                Detector::UsSsn,
                ["078-05-1120", "078 05 1120", "078-05-1120"],
            ),
            (
                Detector::Phone,
                ["+49 30 90182012", "0049-30-90182012", "0049 (0)30 90182012"],
            ),
            (
                Detector::Iban,
                [
                    "DE89370400440532013000",
                    "DE89 3704 0044 0532 0130 00",
                    "de89-3704-0044-0532-0130-00",
                ],
            ),
            (
                Detector::MacAddress,
                ["00:1a:2b:3c:4d:5e", "00-1A-2B-3C-4D-5E", "001a.2b3c.4d5e"],
            ),
            (
                Detector::Email,
                ["jane@example.com", "Jane@Example.COM", "JANE@EXAMPLE.COM"],
            ),
            (
                Detector::IpAddress,
                ["2001:db8::17", "2001:DB8:0:0:0:0:0:17", "2001:0db8::0017"],
            ),
        ] {
            let [one, other, third] = spellings.map(|text| canonical(detector.id(), text));
            assert_eq!(one, other);
            assert_eq!(one, third);
        }
        let secret = "sk_live_aB";
        assert_eq!(canonical(Detector::StripeKey.id(), secret), secret);
    }
}
