//! Formats the content of samples as text for tests.

use super::dictionary::Dictionary;
use super::id::LocationId;
use crate::entry::{Attribute, SampleKey};

/// Formats the key of a sample, independently of the addresses of binaries.
pub(crate) fn about(dictionary: &Dictionary, key: SampleKey) -> String {
    let attribute = |attribute: Attribute| {
        let [key, unit] = [attribute.key, attribute.unit].map(|id| dictionary.text(id));
        format!(
            "{key} {unit} {:?}",
            dictionary.encoded_value(attribute.value)
        )
    };
    let attributes = |set| {
        let ids = dictionary.attributes(set).iter();
        let mut texts: Vec<_> = ids
            .map(|id| attribute(dictionary.get_attribute(*id)))
            .collect();
        texts.sort();
        texts
    };
    let location = |id: &LocationId| {
        let location = dictionary.get_location(*id);
        let mapping = dictionary.get_mapping(location.mapping);
        let binary = dictionary.binary(mapping);
        let lines = dictionary.get_lines(location.lines).iter().map(|line| {
            let function = dictionary.get_function(line.function);
            let names = [function.name, function.system_name, function.filename];
            let names = names.map(|id| dictionary.text(id));
            (names, function.start_line, line.line, line.column)
        });
        format!(
            "{:?}",
            (
                location.address.wrapping_sub(mapping.start),
                (
                    binary.pages,
                    binary.file_offset,
                    dictionary.text(binary.filename)
                ),
                attribute(binary.build_id),
                lines.collect::<Vec<_>>(),
                attributes(location.attributes),
            )
        )
    };
    let stack: Vec<_> = dictionary
        .locations(key.stack)
        .iter()
        .map(location)
        .collect();
    let link = dictionary.get_link(key.link);
    format!("{stack:?} {:?} {link:?}", attributes(key.attributes))
}
