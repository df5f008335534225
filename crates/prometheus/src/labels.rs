//! Label sets.

/// Name of the label that has the name of the metric.
const NAME: &str = "__name__";

/// Labels of one series, sorted by name, in one allocation each for texts and positions.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct LabelSet {
    texts: Box<str>,
    /// Ends of the names and values within the texts, alternating.
    ends: Box<[u32]>,
}

impl LabelSet {
    /// Creates a set from sorted labels without duplicates.
    fn new(labels: &[(String, String)]) -> Self {
        let bytes = labels.iter().map(|(name, value)| name.len() + value.len());
        let mut texts = String::with_capacity(bytes.sum());
        let mut ends = Vec::with_capacity(labels.len() * 2);
        for text in labels.iter().flat_map(|(name, value)| [name, value]) {
            texts.push_str(text);
            // A label set is a part of a page, which is smaller than 4 GiB.
            ends.push(u32::try_from(texts.len()).unwrap_or(u32::MAX));
        }
        LabelSet {
            texts: texts.into(),
            ends: ends.into(),
        }
    }

    /// Returns names and values, in the order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + '_ {
        let mut start = 0;
        self.ends.chunks_exact(2).map(move |ends| {
            let mut next = |end: Option<&u32>| {
                let end = end.map_or(0, |end| *end as usize);
                let text = self.texts.get(start..end).unwrap_or_default();
                start = end;
                text
            };
            (next(ends.first()), next(ends.get(1)))
        })
    }

    /// Returns the value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut labels = self.iter();
        labels
            .find(|(other, _)| *other == name)
            .map(|(_, value)| value)
    }

    /// Returns the name of the metric; empty if there is none.
    pub fn metric(&self) -> &str {
        self.get(NAME).unwrap_or_default()
    }

    /// Number of labels.
    pub fn len(&self) -> usize {
        self.ends.len() / 2
    }

    /// Whether there are no labels.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Memory of the set in bytes.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.texts.len() + size_of_val(&*self.ends)
    }
}

/// Labels while they change. A label with an empty value does not exist.
///
/// The order of [`iter`](Self::iter) is that of Prometheus' builder, which `labelmap` depends on: the labels that
/// existed at first, sorted, then those that were set since, in the order of their first setting.
#[derive(Debug, Clone, Default)]
pub struct LabelBuilder {
    labels: Vec<(String, String)>,
    /// Number of labels that existed at first and have not been set since.
    original: usize,
}

impl LabelBuilder {
    /// Returns names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> + '_ {
        let labels = self.labels.iter();
        labels.map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Returns the value of a label; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        let mut labels = self.iter();
        labels
            .find(|(other, _)| *other == name)
            .map_or("", |(_, value)| value)
    }

    /// Sets a label. An empty value removes the label.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        let value = value.into();
        if value.is_empty() {
            return self.remove(name);
        }
        let at = self.labels.iter().position(|(other, _)| other == name);
        match at {
            Some(at) if at >= self.original => {
                if let Some((_, old)) = self.labels.get_mut(at) {
                    *old = value;
                }
                return;
            }
            Some(_) => self.remove(name),
            None => {}
        }
        self.labels.push((name.to_owned(), value));
    }

    /// Removes a label.
    pub fn remove(&mut self, name: &str) {
        if let Some(at) = self.labels.iter().position(|(other, _)| other == name) {
            self.labels.remove(at);
            if at < self.original {
                self.original -= 1;
            }
        }
    }

    /// Removes the labels that fit.
    pub fn remove_all(&mut self, fits: impl Fn(&str) -> bool) {
        let original = self.labels.get(..self.original).unwrap_or_default();
        self.original -= original.iter().filter(|(name, _)| fits(name)).count();
        self.labels.retain(|(name, _)| !fits(name));
    }

    /// Returns the labels, sorted by name.
    pub fn build(mut self) -> LabelSet {
        self.labels.sort_unstable();
        LabelSet::new(&self.labels)
    }
}

/// Labels as they are on a page: each name may occur more than once.
#[derive(Debug, Default)]
pub struct PageLabels {
    labels: Vec<(String, String)>,
}

impl PageLabels {
    pub(crate) fn push(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.labels.push((name.into(), value.into()));
    }

    /// Returns the name of the metric or label that occurs twice, if there is any.
    pub fn duplicate(&self) -> Option<&str> {
        let mut names: Vec<&str> = self.labels.iter().map(|(name, _)| name.as_str()).collect();
        names.sort_unstable();
        let pairs = names.windows(2);
        pairs
            .filter_map(|pair| match pair {
                [first, second] if first == second => Some(*first),
                _ => None,
            })
            .next()
    }

    /// Returns the value of a label.
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut labels = self.labels.iter();
        labels
            .find(|(other, _)| other == name)
            .map(|(_, value)| value.as_str())
    }

    /// Returns names and values, sorted by name.
    pub fn sorted(mut self) -> Vec<(String, String)> {
        self.labels.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.labels
    }
}

impl FromIterator<(String, String)> for PageLabels {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(labels: I) -> Self {
        PageLabels {
            labels: labels.into_iter().collect(),
        }
    }
}

impl From<PageLabels> for LabelBuilder {
    fn from(page: PageLabels) -> Self {
        let mut labels = page.sorted();
        labels.retain(|(_, value)| !value.is_empty());
        LabelBuilder {
            original: labels.len(),
            labels,
        }
    }
}

/// Whether a text is a name of a label without UTF-8: letters, digits and underscores, no digit first.
pub fn is_legacy_name(name: &str) -> bool {
    let mut bytes = name.bytes();
    let first = bytes
        .next()
        .is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    first && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_labels_follow_the_original_ones() {
        let mut page = PageLabels::default();
        for (name, value) in [("b", "1"), ("a", "2"), ("c", "3"), ("empty", "")] {
            page.push(name, value);
        }
        let mut labels = LabelBuilder::from(page);
        labels.set("z", "4");
        labels.set("a", "5");
        labels.set("z", "6");
        labels.set("c", "");
        let names: Vec<(&str, &str)> = labels.iter().collect();
        assert_eq!(names, [("b", "1"), ("z", "6"), ("a", "5")]);
        let set = labels.build();
        let sorted: Vec<(&str, &str)> = set.iter().collect();
        assert_eq!(sorted, [("a", "5"), ("b", "1"), ("z", "6")]);
        assert_eq!(
            (set.get("z"), set.get("c"), set.len()),
            (Some("6"), None, 3)
        );
    }
}
