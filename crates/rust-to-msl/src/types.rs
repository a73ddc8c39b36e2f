//! [`Ty`], the types of the subset, and [`Table`], which infers them by unification as rustc does: integer and float literals have variables
//! of their own kind.

use std::fmt;

/// A scalar type of Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scalar {
    I8,
    I16,
    I32,
    I64,
    Isize,
    U8,
    U16,
    U32,
    U64,
    Usize,
    F16,
    F32,
    Bool,
}

impl Scalar {
    const ALL: [(&'static str, &'static str, Self); 13] = [
        ("i8", "char", Self::I8),
        ("i16", "short", Self::I16),
        ("i32", "int", Self::I32),
        ("i64", "long", Self::I64),
        ("isize", "int", Self::Isize),
        ("u8", "uchar", Self::U8),
        ("u16", "ushort", Self::U16),
        ("u32", "uint", Self::U32),
        ("u64", "ulong", Self::U64),
        ("usize", "uint", Self::Usize),
        ("f16", "half", Self::F16),
        ("f32", "float", Self::F32),
        ("bool", "bool", Self::Bool),
    ];

    /// The scalar of this Rust name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(rust, ..)| *rust == name).map(|(.., scalar)| *scalar)
    }

    /// Its name in Rust.
    pub fn rust(self) -> &'static str {
        Self::ALL.iter().find(|(.., scalar)| *scalar == self).map_or("", |(rust, ..)| rust)
    }

    /// Its name in MSL. `usize` and `isize` have 32 bits.
    pub fn msl(self) -> &'static str {
        Self::ALL.iter().find(|(.., scalar)| *scalar == self).map_or("", |(_, msl, _)| msl)
    }

    /// Whether it is an integer.
    pub fn is_integer(self) -> bool {
        !matches!(self, Self::F16 | Self::F32 | Self::Bool)
    }

    /// Whether it is a signed integer.
    pub fn is_signed(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64 | Self::Isize)
    }

    /// Whether it is a floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Self::F16 | Self::F32)
    }

    /// Its width on devices, in bits.
    pub fn bits(self) -> u32 {
        match self {
            Self::I8 | Self::U8 | Self::Bool => 8,
            Self::I16 | Self::U16 | Self::F16 => 16,
            Self::I32 | Self::U32 | Self::F32 | Self::Usize | Self::Isize => 32,
            Self::I64 | Self::U64 => 64,
        }
    }

    /// The unsigned integer of the same width.
    pub fn unsigned(self) -> Self {
        match self.bits() {
            8 => Self::U8,
            16 => Self::U16,
            32 => Self::U32,
            _ => Self::U64,
        }
    }
}

/// An address space of Metal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Space {
    /// Buffers.
    Device,
    /// Buffers that kernels only read, all threads the same element at a time.
    Constant,
    /// Memory of a threadgroup.
    Threadgroup,
    /// Variables of a thread.
    #[default]
    Thread,
}

impl Space {
    /// The keyword.
    pub fn msl(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Constant => "constant",
            Self::Threadgroup => "threadgroup",
            Self::Thread => "thread",
        }
    }
}

/// A type.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ty {
    Unit,
    /// Of `return`, `break` and `continue`.
    Never,
    Scalar(Scalar),
    Vector(u8, Box<Ty>),
    /// With its length as an MSL expression; empty if it is not known, as of a `[T; _]`.
    Array(Box<Ty>, String),
    Slice(Box<Ty>),
    Ref {
        mutable: bool,
        inner: Box<Ty>,
    },
    /// A struct that derives `KernelType`.
    Struct(String),
    /// An enum without fields that derives `KernelType`.
    Enum(String),
    Tuple(Vec<Ty>),
    Atomic(Scalar),
    /// A type parameter of the kernel: an alias in MSL.
    Param(String),
    /// A variable of [`Table`].
    Var(usize),
}

impl Ty {
    pub const BOOL: Self = Self::Scalar(Scalar::Bool);
    pub const U32: Self = Self::Scalar(Scalar::U32);
    pub const USIZE: Self = Self::Scalar(Scalar::Usize);
    pub const F32: Self = Self::Scalar(Scalar::F32);
    pub const F16: Self = Self::Scalar(Scalar::F16);

    /// The type behind references.
    pub fn peeled(&self) -> &Self {
        match self {
            Self::Ref { inner, .. } => inner.peeled(),
            other => other,
        }
    }

    /// The scalar, or that of a vector's lanes.
    pub fn scalar(&self) -> Option<Scalar> {
        match self {
            Self::Scalar(scalar) => Some(*scalar),
            Self::Vector(_, lane) => lane.scalar(),
            _ => None,
        }
    }
}

impl fmt::Display for Ty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unit => write!(f, "()"),
            Self::Never => write!(f, "!"),
            Self::Scalar(scalar) => write!(f, "{}", scalar.rust()),
            Self::Vector(lanes, lane) => write!(f, "Vec{lanes}<{lane}>"),
            Self::Array(element, length) if length.is_empty() => write!(f, "[{element}; _]"),
            Self::Array(element, length) => write!(f, "[{element}; {length}]"),
            Self::Slice(element) => write!(f, "[{element}]"),
            Self::Ref { mutable: true, inner } => write!(f, "&mut {inner}"),
            Self::Ref { mutable: false, inner } => write!(f, "&{inner}"),
            Self::Struct(name) | Self::Enum(name) | Self::Param(name) => write!(f, "{name}"),
            Self::Tuple(types) => {
                let names: Vec<_> = types.iter().map(ToString::to_string).collect();
                write!(f, "({})", names.join(", "))
            }
            Self::Atomic(Scalar::I32) => write!(f, "AtomicI32"),
            Self::Atomic(_) => write!(f, "AtomicU32"),
            Self::Var(_) => write!(f, "_"),
        }
    }
}

/// What a variable may become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Any,
    Integer,
    Float,
}

/// The variables of a function, and what they are bound to.
#[derive(Debug, Default)]
pub struct Table {
    variables: Vec<(Kind, Option<Ty>)>,
}

impl Table {
    fn variable(&mut self, kind: Kind) -> Ty {
        self.variables.push((kind, None));
        Ty::Var(self.variables.len() - 1)
    }

    /// A new variable for any type.
    pub fn any(&mut self) -> Ty {
        self.variable(Kind::Any)
    }

    /// A new variable for an integer type.
    pub fn integer(&mut self) -> Ty {
        self.variable(Kind::Integer)
    }

    /// A new variable for a floating-point type.
    pub fn float(&mut self) -> Ty {
        self.variable(Kind::Float)
    }

    /// The type with bound variables replaced, at its outermost level.
    pub fn shallow(&self, ty: &Ty) -> Ty {
        let mut ty = ty;
        while let Ty::Var(index) = ty {
            match self.variables.get(*index) {
                Some((_, Some(bound))) => ty = bound,
                _ => break,
            }
        }
        ty.clone()
    }

    /// Whether the type is a variable of a float literal that nothing has bound.
    pub fn is_float_literal(&self, ty: &Ty) -> bool {
        matches!(self.shallow(ty), Ty::Var(index) if self.variables[index].0 == Kind::Float)
    }

    /// The type with all bound variables replaced, and integer variables by `i32`.
    pub fn resolve(&self, ty: &Ty) -> Ty {
        match self.shallow(ty) {
            Ty::Var(index) if self.variables[index].0 == Kind::Integer => Ty::Scalar(Scalar::I32),
            Ty::Vector(lanes, lane) => Ty::Vector(lanes, Box::new(self.resolve(&lane))),
            Ty::Array(element, length) => Ty::Array(Box::new(self.resolve(&element)), length),
            Ty::Slice(element) => Ty::Slice(Box::new(self.resolve(&element))),
            Ty::Ref { mutable, inner } => Ty::Ref { mutable, inner: Box::new(self.resolve(&inner)) },
            Ty::Tuple(types) => Ty::Tuple(types.iter().map(|ty| self.resolve(ty)).collect()),
            other => other,
        }
    }

    /// Makes both types equal; false if they cannot be. Lengths of arrays are rustc's to compare.
    pub fn unify(&mut self, a: &Ty, b: &Ty) -> bool {
        let (a, b) = (self.shallow(a), self.shallow(b));
        match (&a, &b) {
            (Ty::Var(x), Ty::Var(y)) if x == y => true,
            (Ty::Var(x), Ty::Var(y)) => {
                let (from, to) = match (self.variables[*x].0, self.variables[*y].0) {
                    (Kind::Any, _) => (*x, b.clone()),
                    (_, Kind::Any) => (*y, a.clone()),
                    (x_kind, y_kind) if x_kind == y_kind => (*x, b.clone()),
                    _ => return false,
                };
                self.variables[from].1 = Some(to);
                true
            }
            (Ty::Var(x), other) | (other, Ty::Var(x)) => {
                let fits = match self.variables[*x].0 {
                    Kind::Any => true,
                    Kind::Integer => matches!(other, Ty::Scalar(s) if s.is_integer()),
                    Kind::Float => matches!(other, Ty::Scalar(s) if s.is_float()),
                };
                if fits {
                    self.variables[*x].1 = Some((*other).clone());
                }
                fits
            }
            (Ty::Never, _) | (_, Ty::Never) => true,
            (Ty::Vector(n, x), Ty::Vector(m, y)) => n == m && self.unify(x, y),
            (Ty::Array(x, _), Ty::Array(y, _)) | (Ty::Slice(x), Ty::Slice(y)) => self.unify(x, y),
            (Ty::Ref { inner: x, .. }, Ty::Ref { inner: y, .. }) => match (x.as_ref(), y.as_ref()) {
                (Ty::Slice(x), Ty::Array(y, _)) | (Ty::Array(x, _), Ty::Slice(y)) => self.unify(x, y),
                _ => self.unify(x, y),
            },
            (Ty::Tuple(x), Ty::Tuple(y)) => {
                x.len() == y.len() && x.iter().zip(y).all(|(x, y)| self.unify(x, y))
            }
            _ => a == b,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_take_the_type_of_what_they_meet() {
        let mut table = Table::default();
        let (literal, other) = (table.integer(), table.integer());
        assert!(table.unify(&literal, &other));
        assert!(!table.unify(&other, &Ty::F32));
        assert!(table.unify(&other, &Ty::Scalar(Scalar::U8)));
        assert_eq!(table.resolve(&literal), Ty::Scalar(Scalar::U8));
        let alone = table.integer();
        assert_eq!(table.resolve(&alone), Ty::Scalar(Scalar::I32));
        let float = table.float();
        assert!(!table.unify(&float, &Ty::U32) && table.is_float_literal(&float));
    }
}
