//! Views of random requests.

use bytes::Bytes;
use proptest::prelude::*;

use crate::rebuild::reads_like_prost;
use crate::request;

proptest! {
    #[test]
    fn views_read_like_prost_and_admission_keeps_meaning(
        (signal, request) in request(),
    ) {
        reads_like_prost(signal, Bytes::from(request));
    }
}
