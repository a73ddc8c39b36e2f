//! What a kernel takes: the facts against which a launch is checked.

use std::fmt;

/// The scalar types of MSL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[allow(missing_docs)] // the names say it
pub enum Scalar {
    Bool,
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F16,
    BF16,
    F32,
}

impl Scalar {
    /// Size in bytes, which is also the alignment.
    pub const fn size(self) -> u64 {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 => 8,
        }
    }

    /// The name in MSL.
    pub const fn msl_name(self) -> &'static str {
        match self {
            Self::Bool => "bool",
            Self::I8 => "char",
            Self::U8 => "uchar",
            Self::I16 => "short",
            Self::U16 => "ushort",
            Self::I32 => "int",
            Self::U32 => "uint",
            Self::I64 => "long",
            Self::U64 => "ulong",
            Self::F16 => "half",
            Self::BF16 => "bfloat",
            Self::F32 => "float",
        }
    }
}

/// What a pointer or reference argument points to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ElementType {
    /// A scalar.
    Scalar(Scalar),
    /// A vector of 2 to 4; packed vectors have the alignment of their scalar.
    Vector {
        /// Type of a component.
        scalar: Scalar,
        /// Number of components.
        lanes: u32,
        /// `packed_float3` and its kin.
        packed: bool,
    },
    /// An atomic scalar, `atomic_uint` and its kin; holds the plain type's bits.
    Atomic(Scalar),
    /// Anything else (structs, matrices, arrays), by its name; only size and alignment are checked.
    Other(String),
}

impl ElementType {
    /// The scalar it is made of; `None` for [`ElementType::Other`].
    pub const fn scalar(&self) -> Option<Scalar> {
        match self {
            Self::Scalar(s) | Self::Atomic(s) | Self::Vector { scalar: s, .. } => Some(*s),
            Self::Other(_) => None,
        }
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scalar(s) => f.write_str(s.msl_name()),
            Self::Vector { scalar, lanes, packed } => {
                write!(f, "{}{}{lanes}", if *packed { "packed_" } else { "" }, scalar.msl_name())
            }
            Self::Atomic(s) => write!(f, "atomic_{}", s.msl_name()),
            Self::Other(name) => f.write_str(name),
        }
    }
}

/// How an argument is passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ArgKind {
    /// A pointer to any number of elements: `device float*`, `constant float*`.
    Pointer,
    /// A reference to one value: `constant Params&`, `device T&`.
    Reference,
    /// A pointer to threadgroup memory whose length the launch gives.
    Threadgroup,
}

/// What the kernel may do with an argument's memory: by its declared type, and once its code is known also by that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Access {
    /// `const` or in the `constant` address space.
    Read,
    /// Anything else.
    ReadWrite,
}

/// One argument that a launch gives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Arg {
    /// The parameter's name; empty when the source gives none.
    pub name: String,
    /// How it is passed.
    pub kind: ArgKind,
    /// The index of `[[buffer(n)]]` or `[[threadgroup(n)]]`, given or implied.
    pub index: u32,
    /// What it points to.
    pub element: ElementType,
    /// Size of an element in bytes.
    pub element_size: u64,
    /// Alignment of an element in bytes.
    pub element_align: u64,
    /// What the kernel may do with it.
    pub access: Access,
    /// Whether it is in the `constant` address space.
    pub constant: bool,
}

/// A position or size that the kernel asks for, by its MSL attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Builtin {
    /// The attribute, such as `thread_position_in_grid`.
    pub attribute: String,
    /// Components: 1 for a scalar.
    pub dimensions: u32,
}

/// What a kernel takes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Signature {
    /// The name by which it is asked for (`host_name` where given).
    pub name: String,
    /// The arguments of a launch, in the order of the parameters.
    pub args: Vec<Arg>,
    /// The positions and sizes it reads, in the order of the parameters.
    pub builtins: Vec<Builtin>,
    /// The file it is declared in.
    pub file: String,
    /// The line of its declaration, from 1.
    pub line: u32,
    /// `[[max_total_threads_per_threadgroup(n)]]`.
    pub max_threads_per_threadgroup: Option<u32>,
    /// What the compiled code uses. `None` until the kernel's pipeline has been built, and afterwards where the driver has
    /// no way to know, as on Metal without clang.
    pub code: Option<CodeFacts>,
}

/// What a kernel's compiled code uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CodeFacts {
    /// Bytes of threadgroup memory that the kernel declares itself.
    pub threadgroup_memory: u64,
    /// Threadgroup barriers in the code.
    pub barriers: u32,
    /// Atomic operations in the code, fences not counted.
    pub atomics: u32,
    /// Whether it exchanges values between the threads of a simdgroup.
    pub simdgroup: bool,
    /// The arguments, by bit from the first, that the code writes and never reads, as far as the compiler can tell.
    pub only_written: u64,
    /// The arguments, by bit from the first, that the code may write, whatever they are declared as.
    pub may_write: u64,
}

impl Signature {
    /// This signature with what the code uses. An argument that is declared `const` and that the code may write all the same is
    /// [`Access::ReadWrite`] then.
    #[must_use]
    pub fn with_code(mut self, code: CodeFacts) -> Self {
        for (index, arg) in self.args.iter_mut().enumerate() {
            if index >= 64 || code.may_write >> index & 1 == 1 {
                arg.access = Access::ReadWrite;
            }
        }
        self.code = Some(code);
        self
    }

    /// Dimensions of the grid that the kernel looks at: the widest of its position attributes, 1 if none.
    pub fn dimensions(&self) -> u32 {
        self.builtins.iter().map(|b| b.dimensions).max().unwrap_or(1)
    }
}
