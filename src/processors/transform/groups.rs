//! Groups of statements, and the passes through a request in which they are executed.
//!
//! The Collector executes each group on all items of a request before the next group. Consecutive groups of one context
//! share a pass, unless a statement changes an enclosing level that other items would see.

use super::config::{StatementEntry, StatementGroup, TransformConfig};
use crate::processors::filter::ErrorMode;
use tributary_otlp::Signal;
use tributary_ottl::path::{Context, Depth};
use tributary_ottl::statement::Statement;
use tributary_ottl::{
    Condition, EvaluationTarget, ParseError, parse_statement, parse_statement_condition,
};

/// Statements that are executed on the items of one context.
#[derive(Debug, Clone)]
pub(super) struct Group {
    context: Context,
    pub(super) conditions: Vec<Condition>,
    pub(super) statements: Vec<Statement>,
    pub(super) error_mode: ErrorMode,
}

/// A pass through a request.
#[derive(Debug)]
pub(super) struct Pass {
    pub(super) context: Context,
    pub(super) groups: Vec<Group>,
    /// Whether a statement changes an enclosing level, by the depth of the level.
    changes: [bool; 4],
}

/// A statement or condition with a mistake.
#[derive(Debug)]
pub(super) struct Mistake {
    /// Keys that lead to the text.
    pub(super) path: Vec<String>,
    /// Position of the mistake, in characters.
    pub(super) character: usize,
    pub(super) message: String,
}

impl Group {
    /// Returns the maximum bytes of the values in the group.
    pub(super) fn copied_bytes(&self) -> usize {
        let conditions = self.conditions.iter().map(Condition::copied_bytes);
        let statements = self.statements.iter().map(Statement::copied_bytes);
        conditions.chain(statements).sum()
    }

    /// Returns the group for the parts inside the current part, partially evaluated. `None` if nothing in the group
    /// depends on the current part.
    fn within(&self, depth: Depth, here: &EvaluationTarget<'_>) -> Option<Group> {
        let conditions: Vec<_> = self
            .conditions
            .iter()
            .map(|condition| condition.within(depth, here))
            .collect();
        let statements: Vec<_> = self
            .statements
            .iter()
            .map(|statement| statement.within(depth, here))
            .collect();
        let depends =
            conditions.iter().any(Option::is_some) || statements.iter().any(Option::is_some);
        depends.then(|| Group {
            context: self.context,
            conditions: conditions
                .into_iter()
                .zip(&self.conditions)
                .map(|(known, whole)| known.unwrap_or_else(|| whole.clone()))
                .collect(),
            statements: statements
                .into_iter()
                .zip(&self.statements)
                .map(|(known, whole)| known.unwrap_or_else(|| whole.clone()))
                .collect(),
            error_mode: self.error_mode,
        })
    }
}

/// Returns the groups for the parts inside the current part. `None` if no group depends on the current part.
pub(super) fn groups_within(
    groups: &[Group],
    depth: Depth,
    here: &EvaluationTarget<'_>,
) -> Option<Vec<Group>> {
    let known: Vec<_> = groups
        .iter()
        .map(|group| group.within(depth, here))
        .collect();
    known.iter().any(Option::is_some).then(|| {
        let pairs = known.into_iter().zip(groups);
        pairs
            .map(|(known, whole)| known.unwrap_or_else(|| whole.clone()))
            .collect()
    })
}

impl Pass {
    fn new(group: Group) -> Self {
        let mut changes = [false; 4];
        for context in group.statements.iter().filter_map(Statement::writes) {
            if let Some(changed) = changes.get_mut(context.depth() as usize) {
                *changed |= context.depth() < group.context.depth();
            }
        }
        Pass {
            context: group.context,
            groups: vec![group],
            changes,
        }
    }

    /// Whether a statement changes a level that encloses the items of the pass.
    pub(super) fn changes(&self, depth: Depth) -> bool {
        self.changes
            .get(depth as usize)
            .copied()
            .unwrap_or_default()
    }

    /// Whether no statement changes an enclosing level.
    fn changes_only_items(&self) -> bool {
        !self.changes.contains(&true)
    }

    /// Whether no statement changes the level at `depth` or one around it, so that this much of the statements may be
    /// evaluated once for all items inside.
    pub(super) fn keeps(&self, depth: Depth) -> bool {
        !self
            .changes
            .iter()
            .take(depth as usize + 1)
            .any(|changed| *changed)
    }

    /// Whether statements of this pass add metrics.
    fn adds(&self) -> bool {
        let mut statements = self.groups.iter().flat_map(|group| &group.statements);
        statements.any(Statement::adds_metrics)
    }
}

/// Returns the passes of a signal.
///
/// # Errors
///
/// All mistakes in the statements and conditions of the signal.
pub(super) fn passes(config: &TransformConfig, signal: Signal) -> Result<Vec<Pass>, Vec<Mistake>> {
    let mut passes: Vec<Pass> = Vec::new();
    let mut mistakes = Vec::new();
    for written in written(config, signal) {
        let group = match written.group(signal, config.error_mode) {
            Ok(group) => group,
            Err(found) => {
                mistakes.extend(found);
                continue;
            }
        };
        let Some(group) = group else { continue };
        let pass = Pass::new(group);
        match passes.last_mut() {
            Some(last)
                if last.context == pass.context
                    && last.changes_only_items()
                    && pass.changes_only_items()
                    && !last.adds()
                    && !pass.adds() =>
            {
                last.groups.extend(pass.groups);
            }
            _ => passes.push(pass),
        }
    }
    match mistakes.is_empty() {
        true => Ok(passes),
        false => Err(mistakes),
    }
}

/// Returns the lists of statements with their keys.
pub(super) fn lists(config: &TransformConfig) -> [(&'static str, Signal, &[StatementEntry]); 4] {
    [
        ("trace_statements", Signal::Traces, &config.trace_statements),
        (
            "metric_statements",
            Signal::Metrics,
            &config.metric_statements,
        ),
        ("log_statements", Signal::Logs, &config.log_statements),
        (
            "profile_statements",
            Signal::Profiles,
            &config.profile_statements,
        ),
    ]
}

/// A text with the keys that lead to it.
type Located<'c> = (Vec<String>, &'c str);

/// A group in the configuration.
struct WrittenGroup<'c> {
    context: Option<Context>,
    error_mode: Option<ErrorMode>,
    conditions: Vec<Located<'c>>,
    statements: Vec<Located<'c>>,
}

fn written(config: &TransformConfig, signal: Signal) -> Vec<WrittenGroup<'_>> {
    let mut groups = Vec::new();
    let mut flat = Vec::new();
    for (key, _, entries) in lists(config).into_iter().filter(|(_, of, _)| *of == signal) {
        for (at, entry) in entries.iter().enumerate() {
            let path = [key.to_owned(), at.to_string()];
            match entry {
                StatementEntry::Text(text) => flat.push((path.to_vec(), text.as_str())),
                StatementEntry::Group(group) => groups.push(of_group(&path, group)),
            }
        }
    }
    if !flat.is_empty() {
        groups.push(WrittenGroup {
            context: None,
            error_mode: None,
            conditions: Vec::new(),
            statements: flat,
        });
    }
    groups
}

fn of_group<'c>(path: &[String], group: &'c StatementGroup) -> WrittenGroup<'c> {
    let located = |key: &str, texts: &'c [String]| -> Vec<Located<'c>> {
        let texts = texts.iter().enumerate();
        texts
            .map(|(at, text)| {
                let tail = [key.to_owned(), at.to_string()];
                ([path, &tail].concat(), text.as_str())
            })
            .collect()
    };
    let context = group.context.as_deref().map(str::to_ascii_lowercase);
    WrittenGroup {
        context: context.as_deref().and_then(Context::of_name),
        error_mode: group.error_mode,
        conditions: located("conditions", &group.conditions),
        statements: located("statements", &group.statements),
    }
}

impl WrittenGroup<'_> {
    /// Parses the group; `None` if it has no statements.
    fn group(&self, signal: Signal, default: ErrorMode) -> Result<Option<Group>, Vec<Mistake>> {
        let context = match self.context {
            Some(context) => Some(context),
            None => self.inferred(signal)?,
        };
        let (conditions, wrong) = parsed(&self.conditions, "condition", |text| {
            parse_statement_condition(text, signal, context)
        });
        let (statements, also_wrong) = parsed(&self.statements, "statement", |text| {
            parse_statement(text, signal, context)
        });
        let mistakes: Vec<Mistake> = wrong.into_iter().chain(also_wrong).collect();
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let context = context.or_else(|| statements.first().map(|statement| statement.context));
        if let Some(mistake) = self.conflict(&statements) {
            return Err(vec![mistake]);
        }
        Ok(context
            .filter(|_| !statements.is_empty())
            .map(|context| Group {
                context,
                conditions,
                statements,
                error_mode: self.error_mode.unwrap_or(default),
            }))
    }

    /// Refuses a function that reads all data points of a metric beside a statement on data points that changes the
    /// metric, because the data points are apart from a metric that changes.
    fn conflict(&self, statements: &[Statement]) -> Option<Mistake> {
        let is_of_points = |statement: &&Statement| statement.context == Context::DataPoint;
        let changes_metric = statements
            .iter()
            .filter(is_of_points)
            .any(|statement| statement.writes() == Some(Context::Metric));
        let mut statements = statements.iter().filter(is_of_points);
        let at = statements.position(|statement| statement.adds_metrics())?;
        let (path, _) = self.statements.get(at).filter(|_| changes_metric)?;
        Some(Mistake {
            path: path.clone(),
            character: 0,
            message: "needs a group of its own, because another statement of the group changes the metric"
                .to_owned(),
        })
    }

    /// Returns the deepest context of all texts.
    fn inferred(&self, signal: Signal) -> Result<Option<Context>, Vec<Mistake>> {
        // A condition without a path has no context of its own.
        let has_path = |result: Result<Context, ParseError>| match result {
            Err(mistake) if mistake.at == 0 && mistake.message.starts_with("has no path") => {
                Ok(None)
            }
            other => other.map(Some),
        };
        let (conditions, wrong) = parsed(&self.conditions, "condition", |text| {
            has_path(
                parse_statement_condition(text, signal, None).map(|condition| condition.context),
            )
        });
        let (statements, also_wrong) = parsed(&self.statements, "statement", |text| {
            has_path(parse_statement(text, signal, None).map(|statement| statement.context))
        });
        let mistakes: Vec<Mistake> = wrong.into_iter().chain(also_wrong).collect();
        if !mistakes.is_empty() {
            return Err(mistakes);
        }
        let contexts = conditions.into_iter().chain(statements).flatten();
        Ok(contexts.max_by_key(|context| context.depth()))
    }
}

fn parsed<T>(
    texts: &[Located<'_>],
    kind: &str,
    parse: impl Fn(&str) -> Result<T, ParseError>,
) -> (Vec<T>, Vec<Mistake>) {
    let mut found = Vec::new();
    let mut mistakes = Vec::new();
    for (path, text) in texts {
        match parse(text) {
            Ok(parsed) => found.push(parsed),
            Err(mistake) => mistakes.push(Mistake {
                path: path.clone(),
                character: mistake.characters(text),
                message: mistake.within(text, kind),
            }),
        }
    }
    (found, mistakes)
}
