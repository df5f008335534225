use super::*;

#[test]
fn attribute_set_ignores_order_null_and_duplicate_keys() {
    let mut dictionary = Dictionary::new();
    let a = dictionary.string_attribute("a", "1");
    let b = dictionary.string_attribute("b", "2");
    let other_a = dictionary.string_attribute("a", "3");
    let set = dictionary.attribute_set(&[a, b]);
    assert_eq!(dictionary.attribute_set(&[b, a]), set);
    assert_eq!(
        dictionary.attribute_set(&[AttributeId::default(), b, a, other_a]),
        set
    );
    assert_ne!(dictionary.attribute_set(&[b, other_a, a]), set);
    assert_eq!(dictionary.attribute_set(&[]), AttributeSetId::default());
    let found = dictionary.find(set, "b").unwrap();
    assert_eq!(
        dictionary.any_value(found.value).value,
        Some(Value::StringValue("2".to_owned()))
    );
}

#[test]
fn binary_identity_is_build_id_or_name_and_pages() {
    let mut dictionary = Dictionary::new();
    let filename = dictionary.string("/bin/a");
    let other = dictionary.string("/bin/b");
    let gnu = dictionary.string_attribute(names::BUILD_ID_GNU, "ab12");
    let go = dictionary.string_attribute(names::BUILD_ID_GO, "x/y");
    let gnu_only = dictionary.attribute_set(&[gnu]);
    let both = dictionary.attribute_set(&[go, gnu]);
    let mapping = |start, size, filename, attributes| Mapping {
        start,
        limit: start + size,
        file_offset: 0,
        filename,
        attributes,
    };
    let none = AttributeSetId::default();
    let binary = |mapping| dictionary.binary(mapping);
    assert_eq!(
        binary(mapping(0x1000, 0x1fff, filename, none)),
        binary(mapping(0x9000, 0x2000, filename, none)),
    );
    assert_ne!(
        binary(mapping(0x1000, 0x2000, filename, none)),
        binary(mapping(0x1000, 0x2000, other, none)),
    );
    assert_eq!(
        binary(mapping(0x1000, 0x2000, filename, gnu_only)),
        binary(mapping(0x1000, 0x2000, other, both)),
    );
    assert_ne!(
        binary(mapping(0x1000, 0x2000, filename, gnu_only)),
        binary(mapping(0x1000, 0x3000, filename, gnu_only)),
    );
}
