//! The parts of a C++ name.

/// A node, by its place among all nodes of a name.
pub(super) type Id = u32;

/// A list of nodes, by its place among all lists of a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct List {
    pub(super) start: u32,
    pub(super) end: u32,
}

impl List {
    pub(super) fn len(self) -> usize {
        (self.end - self.start) as usize
    }
}

/// `const`, `volatile` and `restrict`, and `&` or `&&` behind a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Qualifiers {
    pub(super) is_const: bool,
    pub(super) is_volatile: bool,
    pub(super) is_restrict: bool,
    pub(super) reference: Option<Reference>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reference {
    LValue,
    RValue,
}

/// A function, with its type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) result: Option<Id>,
    /// None in a function type.
    pub(super) name: Option<Id>,
    /// The arguments of the template that is named.
    pub(super) arguments: Option<List>,
    pub(super) parameters: List,
    pub(super) qualifiers: Qualifiers,
    /// An exception specification, or constraints.
    pub(super) suffix: Option<Id>,
}

/// A part of a name, as far as its text needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node<'a> {
    Text(&'a str),
    /// A text before a node.
    Prefix(&'a str, Id),
    /// A text behind a node.
    Suffix(Id, &'a str),
    /// A text, a node and another text.
    Around(&'a str, Id, &'a str),
    /// Two nodes with a text in between.
    Between(Id, &'a str, Id),
    /// Two expressions with an operator.
    Binary(Id, &'a str, Id),
    /// An operator before an expression.
    Unary(&'a str, Id),
    Conditional(Id, Id, Id),
    /// An expression and a list in parentheses or braces.
    Call(Id, [&'a str; 2], List),
    /// Nodes with commas between a text and another one.
    Enclosed(&'a str, List, &'a str),
    /// `static_cast<type>(expression)` and the like.
    Cast(&'a str, Id, Id),
    /// `(type)expression`.
    CStyleCast(Id, List),
    /// Name and arguments of a template.
    Template(Id, List),
    /// Arguments of a template that were given for one parameter.
    Pack(List),
    Expansion(Id),
    /// A parameter of the named template, by its place. The scope in which it is written decides which argument it stands for.
    Argument(u64),
    /// A name, with the arguments of the template that it names.
    Scoped(Id, List),
    /// The constructor (or destructor) of a class.
    Constructor(Id, bool),
    /// A conversion operator.
    Conversion(Id),
    /// An abbreviation such as `Ss`: the short form, the long form, and the name of the class.
    Standard(&'static [&'static str; 3]),
    Closure {
        parameters: List,
        number: u64,
    },
    Unnamed(u64),
    Function(Function),
    Qualified(Id, Qualifiers),
    Pointer(Id),
    Referred(Id, Reference),
    MemberPointer(Id, Id),
    Array(Id, Option<Id>),
    /// A number of a type that is not written behind it.
    Literal(Id, &'a str, bool),
    /// A number with the letters behind it that say its type.
    Number(&'a str, &'static str, bool),
    Parameter(u64),
}

impl Node<'_> {
    /// The nodes that are written in this one, outside of other expansions.
    pub(super) fn parts(self) -> ([Option<Id>; 3], List) {
        let none = List::default();
        match self {
            Node::Prefix(_, one)
            | Node::Suffix(one, _)
            | Node::Around(_, one, _)
            | Node::Unary(_, one)
            | Node::Conversion(one)
            | Node::Constructor(one, _)
            | Node::Qualified(one, _)
            | Node::Pointer(one)
            | Node::Referred(one, _)
            | Node::Scoped(one, _)
            | Node::Literal(one, ..) => ([Some(one), None, None], none),
            Node::Between(one, _, two)
            | Node::Binary(one, _, two)
            | Node::Cast(_, one, two)
            | Node::MemberPointer(one, two) => ([Some(one), Some(two), None], none),
            Node::Conditional(one, two, three) => ([Some(one), Some(two), Some(three)], none),
            Node::Array(one, two) => ([Some(one), two, None], none),
            Node::Call(one, _, list) | Node::CStyleCast(one, list) | Node::Template(one, list) => {
                ([Some(one), None, None], list)
            }
            Node::Enclosed(_, list, _) | Node::Pack(list) => ([None; 3], list),
            Node::Closure { parameters, .. } => ([None; 3], parameters),
            Node::Function(of) => ([of.name, of.result, of.suffix], of.parameters),
            Node::Expansion(_)
            | Node::Argument(_)
            | Node::Text(_)
            | Node::Standard(_)
            | Node::Unnamed(_)
            | Node::Number(..)
            | Node::Parameter(_) => ([None; 3], none),
        }
    }
}
