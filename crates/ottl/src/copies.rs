//! Memory of partially evaluated expressions, which have copies of values of the request.

use super::path::Key;
use super::statement::Statement;
use super::{Condition, Operand, Test};

impl Condition {
    /// Returns the maximum bytes of the values that the condition contains.
    pub fn copied_bytes(&self) -> usize {
        self.test.copied_bytes()
    }
}

impl Statement {
    /// Returns the maximum bytes of the values that the statement contains.
    pub fn copied_bytes(&self) -> usize {
        let condition = self.condition.as_ref().map_or(0, Test::copied_bytes);
        let arguments = self.arguments.iter().flatten();
        condition + arguments.map(Operand::copied_bytes).sum::<usize>()
    }
}

impl Test {
    fn copied_bytes(&self) -> usize {
        match self {
            Test::Constant(_) | Test::Undecided(_) => 0,
            Test::Not(test) => test.copied_bytes(),
            Test::All(tests) | Test::Any(tests) => tests.iter().map(Test::copied_bytes).sum(),
            Test::Compare(left, _, right) => left.copied_bytes() + right.copied_bytes(),
            Test::Truth(operand) => operand.copied_bytes(),
        }
    }
}

impl Operand {
    fn copied_bytes(&self) -> usize {
        let all = |operands: &[Operand]| {
            let contents: usize = operands.iter().map(Operand::copied_bytes).sum();
            contents + size_of_val(operands)
        };
        match self {
            Operand::Text(text) => text.len(),
            Operand::Bytes(bytes) | Operand::Id(bytes) | Operand::Encoded(bytes) => bytes.len(),
            Operand::List(values) | Operand::Coalesce(values) => all(values),
            Operand::Map(entries) => {
                let contents = entries.iter();
                let contents = contents.map(|(key, value)| key.len() + value.copied_bytes());
                contents.sum::<usize>() + size_of_val(entries.as_slice())
            }
            Operand::Call(call) => {
                let arguments = call.arguments.iter().flatten();
                arguments.map(Operand::copied_bytes).sum::<usize>() + keys(&call.keys)
            }
            Operand::Math(first, rest) => {
                let rest = rest.iter().map(|(_, operand)| operand.copied_bytes());
                first.copied_bytes() + rest.sum::<usize>()
            }
            Operand::Path(path) => keys(&path.keys),
            _ => 0,
        }
    }
}

fn keys(keys: &[Key]) -> usize {
    let bytes = keys.iter().map(|key| match key {
        Key::Computed(operand) => operand.copied_bytes(),
        Key::Name(_) | Key::Position(_) => 0,
    });
    bytes.sum()
}
