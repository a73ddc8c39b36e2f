//! The typed tree between Rust and MSL. Types are variables of the function's table until its end.

use proc_macro2::Span;

use crate::types::{Space, Ty};

/// An expression.
#[derive(Clone, Debug)]
pub(crate) struct Expr {
    pub(crate) ty: Ty,
    pub(crate) span: Span,
    pub(crate) kind: Kind,
}

/// A variable of a function. Its index is that in [`Function::locals`].
#[derive(Clone, Debug)]
pub(crate) struct Local {
    /// The name in MSL.
    pub(crate) name: String,
    pub(crate) ty: Ty,
    pub(crate) space: Space,
    /// A parameter of the kernel that is read by reference from constant memory, or any other that is never spilled.
    pub(crate) stable: bool,
}

pub(crate) type LoopId = usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Binary {
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    And,
    Or,
    Xor,
    Shl,
    Shr,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    LogicalAnd,
    LogicalOr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unary {
    Neg,
    Not,
}

/// How MSL expresses an operation of the library.
#[derive(Clone, Debug)]
pub(crate) enum Operation {
    /// A function of Metal's library.
    Function(&'static str),
    /// A function that the translation defines, by its name in [`crate::support`].
    Support(&'static str),
    /// Text with `$0`, `$1`… for the operands and `$T` for the type of the result.
    Text(&'static str),
}

#[derive(Clone, Debug)]
pub(crate) enum Kind {
    Integer(String),
    Float(String),
    Bool(bool),
    Local(usize),
    /// A constant, by its name in MSL.
    Constant(String),
    /// A constant expression in MSL.
    Raw(String),
    Unary(Unary, Box<Expr>),
    Binary(Binary, Box<Expr>, Box<Expr>),
    Assign(Box<Expr>, Box<Expr>),
    AssignBinary(Binary, Box<Expr>, Box<Expr>),
    Cast(Box<Expr>),
    Index(Box<Expr>, Box<Expr>),
    Field(Box<Expr>, String),
    Deref(Box<Expr>),
    Borrow(Box<Expr>),
    Operation {
        operation: Operation,
        operands: Vec<Expr>,
        /// It reads or writes memory that others see, or waits.
        effect: bool,
    },
    Call {
        function: String,
        generics: Vec<(String, Ty)>,
        /// Values of const parameters, as MSL.
        constants: Vec<(String, String)>,
        arguments: Vec<Expr>,
    },
    /// `printf!`: the text before, between and behind the values, with how each is written.
    Print(Vec<crate::print::Piece>, Vec<Expr>),
    /// The length of a slice: a local.
    Length(usize),
    Vector(Vec<Expr>),
    Tuple(Vec<Expr>),
    Struct(String, Vec<(String, Expr)>),
    Array(Vec<Expr>),
    Repeat(Box<Expr>, String),
    Block(Block),
    If(Box<Expr>, Block, Option<Box<Expr>>),
    Match(Box<Expr>, Vec<Arm>),
    Loop(Loop),
    Break(LoopId, Option<Box<Expr>>),
    Continue(LoopId),
    Return(Option<Box<Expr>>),
}

/// Statements, and the value of the last expression.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    pub(crate) statements: Vec<Statement>,
    pub(crate) tail: Option<Box<Expr>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Statement {
    Let(usize, Option<Expr>, Span),
    Expr(Expr),
}

#[derive(Clone, Debug)]
pub(crate) struct Arm {
    /// `None` if it matches every value.
    pub(crate) condition: Option<Expr>,
    /// Bindings, which the guard may use too.
    pub(crate) bindings: Vec<Statement>,
    pub(crate) guard: Option<Expr>,
    pub(crate) body: Expr,
}

#[derive(Clone, Debug)]
pub(crate) struct Loop {
    pub(crate) id: LoopId,
    pub(crate) kind: LoopKind,
    pub(crate) body: Block,
    /// The name of its label, or of its kind.
    pub(crate) name: String,
}

#[derive(Clone, Debug)]
pub(crate) enum LoopKind {
    Forever,
    While(Box<Expr>),
    Range(Box<Range>),
    /// A labeled block, which is a loop that ends after its first iteration.
    Once,
}

#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) local: usize,
    pub(crate) start: Expr,
    pub(crate) end: Expr,
    pub(crate) inclusive: bool,
    pub(crate) reversed: bool,
    pub(crate) step: Option<Expr>,
}

/// A function whose types are inferred.
pub(crate) struct Function {
    pub(crate) locals: Vec<Local>,
    pub(crate) body: Block,
    pub(crate) result: Ty,
}
