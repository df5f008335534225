use std::collections::BTreeSet;

use super::*;
use crate::svg::{Appearance, draw};
use crate::tree::tests::tree;

const SCALES: FlameScales = [1.0; 2];

/// A tree of depth 3 with many children of different weight.
fn large() -> Tree {
    let mut stacks = String::new();
    for a in 0..12 {
        for b in 0..12 {
            for c in 0..3 {
                stacks.push_str(&format!(
                    "a{a};b{b};c{c} {}\n",
                    1 + (a * 7 + b * 5 + c) % 23
                ));
            }
        }
    }
    tree(&stacks)
}

/// Returns the paths of the drawn frames of a view, and the addresses of the omitted nodes.
fn contents(view: &FlameView) -> (BTreeSet<Vec<String>>, Vec<Zoom>) {
    let mut paths: Vec<Vec<String>> = Vec::new();
    let (mut drawn, mut left_out) = (BTreeSet::new(), Vec::new());
    for (at, frame) in view.frames.iter().enumerate() {
        let mut path = match at {
            0 => Vec::new(),
            _ => paths[frame.parent].clone(),
        };
        if frame.elided > 0 {
            left_out.push(Zoom {
                path: path.clone(),
                skip: frame.skip,
            });
        } else if at > 0 {
            path.push(view.name(frame).to_owned());
            drawn.insert(path.clone());
        }
        paths.push(path);
    }
    (drawn, left_out)
}

#[test]
fn omitted_nodes_are_reachable_by_address() {
    let tree = large();
    for most in [1, 5, 17, 100] {
        let mut seen = BTreeSet::new();
        let mut open = vec![Zoom::default()];
        let mut views = 0;
        while let Some(zoom) = open.pop() {
            let view = tree.view(&zoom, most, SCALES).unwrap();
            assert!(
                view.frames.len() <= 1 + 3 + 2 * most + 1,
                "{}",
                view.frames.len()
            );
            let (drawn, left_out) = contents(&view);
            seen.extend(drawn);
            open.extend(left_out);
            views += 1;
            assert!(views < 2000);
        }
        assert_eq!(seen.len(), tree.len(), "{most} nodes in a view");
    }
}

#[test]
fn frames_of_a_view_add_up() {
    let tree = large();
    for most in [0, 3, 40, 10_000] {
        let view = tree.view(&Zoom::default(), most, SCALES).unwrap();
        let drawn = view.frames.iter().filter(|frame| frame.elided == 0).count();
        assert_eq!(drawn - 1, most.min(tree.len()));
        let left_out: usize = view.frames.iter().map(|frame| frame.elided).sum();
        assert_eq!(drawn - 1 + left_out, tree.len());
        for (at, frame) in view
            .frames
            .iter()
            .enumerate()
            .filter(|(_, f)| f.elided == 0)
        {
            let children = view.frames.iter().enumerate().skip(1);
            let children = children.filter(|(_, child)| child.parent == at);
            let below: i64 = children.map(|(_, child)| child.total[0]).sum();
            assert_eq!(frame.own[0] + below, frame.total[0]);
        }
        let places = view.places();
        for (at, frame) in view.frames.iter().enumerate().skip(1) {
            let (left, width) = places[at];
            let (from, whole) = places[frame.parent];
            assert!(left >= from - 1e-9 && left + width <= from + whole + 1e-9);
        }
    }
}

#[test]
fn zoom_shows_callers_at_full_width() {
    let tree = tree("main;a;x 1\nmain;a;y 2\nmain;b 5\n");
    let path = ["main", "a"].map(str::to_owned).to_vec();
    let view = tree.view(&Zoom { path, skip: 0 }, 10, SCALES).unwrap();
    let names: Vec<_> = view.frames.iter().map(|frame| view.name(frame)).collect();
    assert_eq!(names, ["", "main", "a", "x", "y"]);
    assert_eq!((view.zoomed, view.depths()), (2, vec![0, 1, 2, 3, 3]));
    let third = 1.0 / 3.0;
    let expected = [
        (0.0, 1.0),
        (0.0, 1.0),
        (0.0, 1.0),
        (0.0, third),
        (third, 2.0 * third),
    ];
    assert_eq!(view.places(), expected);
    let nowhere = Zoom {
        path: vec!["b".to_owned()],
        skip: 0,
    };
    assert_eq!(tree.view(&nowhere, 10, SCALES), None);
}

#[test]
fn hostile_names_are_escaped_in_pictures() {
    let long = "x".repeat(100_000);
    let names = [
        "<script>alert(1)</script>",
        "\"'&]]>",
        "\u{202e}evil\u{2066}",
        "a\0b\u{1b}[31m",
        &long,
    ];
    let mut stacks: String = names
        .iter()
        .map(|name| format!("main;{name} 5\n"))
        .collect();
    stacks.push_str("main 1\n");
    let view = tree(&stacks).view(&Zoom::default(), 100, SCALES).unwrap();
    let appearance = Appearance {
        title: names.join(" "),
        width: 1200,
        comparison: None,
    };
    for comparison in [None, Some([1.0, 2.0])] {
        let svg = draw(
            &view,
            &Appearance {
                comparison,
                ..appearance.clone()
            },
        );
        let is_harmless = |c: char| !c.is_control() || c == '\n';
        assert!(svg.chars().all(is_harmless));
        for wrong in ["<script", "\u{202e}", "\u{2066}", "]]>", "'&"] {
            assert!(!svg.contains(wrong), "{wrong}");
        }
        assert!(svg.contains("&lt;script&gt;"));
        assert!(svg.len() < 20_000, "{}", svg.len());
        assert_eq!(svg.matches("<g>").count(), svg.matches("</g>").count());
        assert_eq!(svg.matches('"').count() % 2, 0);
    }
    let json = serde_json::to_string(&view).unwrap();
    assert!(!json.contains('\0') && !json.contains('\u{1b}'));
    let read: serde_json::Value = serde_json::from_str(&json).unwrap();
    let read: Vec<_> = read["names"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|name| name.as_str())
        .collect();
    assert!(names.iter().all(|name| read.contains(name)));
}

#[test]
fn picture_names_omitted_nodes() {
    let view = large().view(&Zoom::default(), 20, SCALES).unwrap();
    let appearance = Appearance {
        title: "cart".to_owned(),
        width: 1200,
        comparison: None,
    };
    let svg = draw(&view, &appearance);
    assert!(svg.starts_with("<svg xmlns=") && svg.ends_with("</svg>\n"));
    assert!(svg.contains(" more)") && svg.contains(">cart<") && svg.contains(">all<"));
}
