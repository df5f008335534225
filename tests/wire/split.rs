use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use tributary::batch::{Decoded, Signal};
use tributary::wire::{self, Limit};

use crate::{lines, request};

proptest! {
    #[test]
    fn pieces_are_within_the_limits_and_nothing_is_lost_or_reordered(
        (signal, request) in request(),
        items in prop_oneof![1..8_usize, Just(usize::MAX)],
        bytes in prop_oneof![1..3000_usize, Just(usize::MAX)],
    ) {
        let request = Bytes::from(request);
        let whole = lines(&Decoded::decode(signal, &request).unwrap());
        let pieces = wire::split(signal, &request, Limit { items, bytes });
        let mut together = Vec::new();
        for (count, piece) in &pieces {
            prop_assert_eq!(wire::validate(signal, piece), Ok(*count));
            let inside = lines(&Decoded::decode(signal, piece).unwrap());
            let things = inside.len();
            if signal != Signal::Profiles {
                prop_assert!(*count <= items);
                prop_assert!(piece.len() <= bytes || *count <= 1 && things <= 1 , "{} bytes of {}", piece.len(), bytes);
            }
            together.extend(inside);
        }
        // What has no items of its own may lose its place next to others, but is never lost.
        let with_items = |lines: &[String]| -> Vec<String> {
            lines.iter().filter(|line| line.starts_with("item")).cloned().collect()
        };
        prop_assert_eq!(with_items(&whole), with_items(&together));
        let whole: BTreeSet<_> = whole.into_iter().collect();
        let together: BTreeSet<_> = together.into_iter().collect();
        prop_assert_eq!(whole, together);
        if pieces.len() == 1 && items == usize::MAX && bytes == usize::MAX {
            prop_assert_eq!(pieces[0].1.as_ptr(), request.as_ptr());
        }
    }
}
