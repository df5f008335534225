use tributary_profiles::folded;
use tributary_profiles::top::sample_type;

use super::*;

pub(crate) fn tree(stacks: &str) -> Tree {
    let profiles = folded::read(stacks).unwrap();
    let kind = sample_type(&profiles, None).unwrap();
    Tree::of(&profiles, kind)
}

/// The first column as folded stacks, in order.
fn stacks(tree: &Tree) -> Vec<String> {
    let path = |mut node: usize| {
        let mut names = Vec::new();
        while node != ROOT {
            names.push(tree.name(node));
            node = tree.nodes[node].parent as usize;
        }
        names.reverse();
        names.join(";")
    };
    let own = tree
        .nodes
        .iter()
        .enumerate()
        .filter(|(_, node)| node.own[0] != 0);
    let mut stacks: Vec<_> = own
        .map(|(at, node)| format!("{} {}", path(at), node.own[0]))
        .collect();
    stacks.sort();
    stacks
}

#[test]
fn tree_has_the_values_of_all_stacks() {
    let all = [
        "main 1",
        "main;a 2",
        "main;a;b 3",
        "main;c;b 4",
        "other;main 5",
    ];
    let tree = tree(&all.join("\n"));
    assert_eq!(stacks(&tree), all);
    assert_eq!(tree.totals(), [15, 0]);
    let total = |path: &[&str]| {
        let path: Vec<String> = path.iter().map(|name| (*name).to_owned()).collect();
        tree.find(&path).map(|node| tree.nodes[node].total[0])
    };
    assert_eq!(total(&["main"]), Some(10));
    assert_eq!(total(&["main", "a"]), Some(5));
    assert_eq!(total(&["main", "b"]), None);
    assert_eq!(tree.len(), 7);
}

#[test]
fn sandwich_counts_every_sample_once() {
    let tree = tree("main;a;f;x 1\nmain;b;f;y 2\nmain;b;f 4\nmain;f;g;f;x 8\nmain;a 16\n");
    let sandwich = tree.sandwich("f").unwrap();
    assert_eq!(
        stacks(&sandwich.callees),
        ["f 4", "f;g;f;x 8", "f;x 1", "f;y 2"]
    );
    assert_eq!(
        stacks(&sandwich.callers),
        ["f;a;main 1", "f;b;main 6", "f;main 8"]
    );
    assert_eq!(sandwich.callers.totals(), sandwich.callees.totals());
    assert_eq!(sandwich.callers.sample_type.0, "samples");
    assert_eq!(tree.sandwich("z"), None);
}

#[test]
fn speedscope_file_has_all_samples() {
    let tree = tree("main;a 2\nmain;a;b 3\nmain -4\n");
    let file: serde_json::Value = serde_json::from_str(&tree.speedscope("a <b>\u{202e}")).unwrap();
    let names: Vec<&str> = file["shared"]["frames"]
        .as_array()
        .unwrap()
        .iter()
        .map(|frame| frame["name"].as_str().unwrap())
        .collect();
    let profile = &file["profiles"][0];
    let samples = profile["samples"].as_array().unwrap().iter().map(|sample| {
        let sample = sample.as_array().unwrap().iter();
        let names: Vec<&str> = sample
            .map(|at| names[at.as_u64().unwrap() as usize])
            .collect();
        names.join(";")
    });
    assert_eq!(samples.collect::<Vec<_>>(), ["main;a", "main;a;b"]);
    assert_eq!(profile["weights"], serde_json::json!([2, 3]));
    assert_eq!(profile["endValue"], 5);
}
