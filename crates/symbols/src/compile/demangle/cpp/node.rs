//! Syntax tree of a C++ name.

/// Index of a node among all nodes of a name.
pub(super) type Id = u32;

/// A list of nodes: a range of the node lists of a name.
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

/// `const`, `volatile` and `restrict`, and `&` or `&&` after a member function.
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) result: Option<Id>,
    /// `None` in a function type.
    pub(super) name: Option<Id>,
    pub(super) arguments: Option<List>,
    pub(super) parameters: List,
    pub(super) qualifiers: Qualifiers,
    /// An exception specification, or constraints.
    pub(super) suffix: Option<Id>,
}

/// A node of the syntax tree, reduced to the content that its text needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Node<'a> {
    Text(&'a str),
    Prefix(&'a str, Id),
    Suffix(Id, &'a str),
    Around(&'a str, Id, &'a str),
    Between(Id, &'a str, Id),
    Binary(Id, &'a str, Id),
    Unary(&'a str, Id),
    Conditional(Id, Id, Id),
    /// An expression and a list in parentheses or braces.
    Call(Id, [&'a str; 2], List),
    /// A comma-separated list between two texts.
    Enclosed(&'a str, List, &'a str),
    Cast(&'a str, Id, Id),
    CStyleCast(Id, List),
    /// Name and arguments of a template.
    Template(Id, List),
    /// Template arguments for one parameter pack.
    Pack(List),
    Expansion(Id),
    /// A template parameter, by its position. The scope in which the parameter is written decides which argument
    /// replaces it.
    Argument(u64),
    /// A name, with the arguments of the named template.
    Scoped(Id, List),
    /// Constructor (or destructor, if true) of a class.
    Constructor(Id, bool),
    Conversion(Id),
    /// A standard abbreviation such as `Ss`: the short form, the long form, and the name of the class.
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
    /// A literal with its type as a prefix.
    Literal(Id, &'a str, bool),
    /// A number with the suffix that states its type.
    Number(&'a str, &'static str, bool),
    Parameter(u64),
}

impl Node<'_> {
    /// Returns the children of this node, except for pack expansions.
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
