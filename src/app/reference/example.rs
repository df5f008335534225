//! The example with every key of a component.

use std::fmt::Write;

use serde_json::Value;
use serde_yaml::Value as Yaml;

use super::keys::{Key, Shape};
use super::words;

/// Returns a configuration with every key of the component `name`: with the value of the minimal example, else with its
/// default, else as a comment.
pub(super) fn full(section: &str, name: &str, minimal: &str, keys: &[Key]) -> String {
    if keys.is_empty() {
        return String::new();
    }
    let minimal: Yaml = serde_yaml::from_str(minimal).unwrap_or_default();
    let components = minimal.get(section).and_then(Yaml::as_mapping);
    let (id, given) = components
        .into_iter()
        .flatten()
        .find(|(id, _)| {
            id.as_str()
                .is_some_and(|id| id.split('/').next() == Some(name))
        })
        .map_or((name, &Yaml::Null), |(id, given)| {
            (id.as_str().unwrap_or(name), given)
        });
    let mut out = format!("{section}:\n  {id}:\n");
    let mut writer = Writer {
        out: &mut out,
        indent: 4,
        comment: None,
        is_dash_due: false,
    };
    writer.keys(keys, given);
    let mut writer = Writer {
        out: &mut out,
        indent: 2,
        comment: None,
        is_dash_due: false,
    };
    for (other, body) in components.into_iter().flatten() {
        if let Some(other) = other.as_str().filter(|other| *other != id) {
            writer.block(other, body);
        }
    }
    if section != "service"
        && let Yaml::Mapping(mut others) = minimal.clone()
    {
        others.remove(section);
        if !others.is_empty() {
            out.push_str(&serde_yaml::to_string(&others).unwrap_or_default());
        }
    }
    out
}

struct Writer<'o> {
    out: &'o mut String,
    indent: usize,
    comment: Option<usize>,
    /// Whether the next line begins an element of a list.
    is_dash_due: bool,
}

impl Writer<'_> {
    fn keys(&mut self, keys: &[Key], given: &Yaml) {
        for key in keys {
            let given = given.get(&key.name);
            // A section that is written is on.
            if key.name != "enabled" || given.is_some() || !key.value.is_null() {
                self.key(key, given);
            }
        }
    }

    fn key(&mut self, key: &Key, given: Option<&Yaml>) {
        let name = &key.name;
        match key.shape {
            Shape::Section => self.section(key, given.unwrap_or(&Yaml::Null)),
            Shape::OffSection => match given {
                Some(given) => self.section(key, given),
                None => self.comment(|writer| writer.section(key, &Yaml::Null)),
            },
            Shape::List | Shape::Map | Shape::Plain => {
                if let Some(given) = given {
                    return self.block(name, given);
                }
                let is_empty = words::default(&key.value).is_none();
                match &key.value {
                    _ if is_empty && !key.keys.is_empty() => {
                        self.comment(|writer| writer.sample(key));
                    }
                    Value::Null => self.comment(|writer| writer.line(&format!("{name}:"))),
                    value => self.line(&format!("{name}: {}", inline(value))),
                }
            }
        }
    }

    fn section(&mut self, key: &Key, given: &Yaml) {
        self.line(&format!("{}:", key.name));
        self.nested(|writer| writer.keys(&key.keys, given));
    }

    /// Writes a list or map with one element.
    fn sample(&mut self, key: &Key) {
        self.line(&format!("{}:", key.name));
        self.nested(|writer| {
            match key.shape {
                Shape::List => writer.is_dash_due = true,
                _ => writer.line("NAME:"),
            }
            writer.nested(|writer| writer.keys(&key.keys, &Yaml::Null));
        });
    }

    /// Writes a value of the minimal example.
    fn block(&mut self, name: &str, value: &Yaml) {
        let pair: serde_yaml::Mapping = [(Yaml::from(name), value.clone())].into_iter().collect();
        for line in serde_yaml::to_string(&pair).unwrap_or_default().lines() {
            self.line(line);
        }
    }

    fn nested(&mut self, write: impl FnOnce(&mut Self)) {
        self.indent += 2;
        write(self);
        self.indent -= 2;
    }

    fn comment(&mut self, write: impl FnOnce(&mut Self)) {
        let before = self.comment;
        self.comment = before.or(Some(self.indent));
        write(self);
        self.comment = before;
    }

    fn line(&mut self, text: &str) {
        let (column, mark) = match self.comment {
            Some(column) => (column, "# "),
            None => (self.indent, ""),
        };
        let mut inner = self.indent - column;
        let mut dash = "";
        if std::mem::take(&mut self.is_dash_due) {
            (inner, dash) = (inner.saturating_sub(2), "- ");
        }
        let _ = writeln!(self.out, "{:column$}{mark}{:inner$}{dash}{text}", "", "");
    }
}

/// Returns a value as YAML on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::String(text) => plain(text),
        value => value.to_string(),
    }
}

/// Returns a string, in quotes if YAML would read it as something else.
fn plain(text: &str) -> String {
    let is_simple = text
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
    match serde_yaml::from_str::<Yaml>(text) {
        // Digits may mean something else to another reader of YAML.
        Ok(Yaml::String(read)) if is_simple && read == text && text.parse::<f64>().is_err() => {
            text.to_owned()
        }
        _ => Value::from(text).to_string(),
    }
}
