//! [`Signature`]: a kernel's parameters, against which launches are validated, and facts about its compiled code.

use std::fmt;

use crate::LogSite;

/// Scalar types of MSL (MSL specification, "Scalar Data Types").
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[allow(missing_docs)] // `Scalar::msl_name` is the documentation
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
    /// Size in bytes: 1, 2, 4 or 8. It is also the alignment.
    pub const fn size(self) -> u64 {
        match self {
            Self::Bool | Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::BF16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 => 8,
        }
    }

    /// MSL name, such as `uint`.
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

/// Pointee type of an argument.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ElementType {
    /// A scalar.
    Scalar(Scalar),
    /// A vector of 2 to 4 components. A packed vector has the alignment of its component type, any other that of its size, where 3
    /// components take the space of 4 (MSL specification, "Vector Data Types").
    Vector {
        /// Component type.
        scalar: Scalar,
        /// Number of components: 2, 3 or 4.
        lanes: u32,
        /// Whether it is a packed vector, such as `packed_float3`.
        packed: bool,
    },
    /// An atomic scalar, such as `atomic_uint`; same representation as the plain type.
    Atomic(Scalar),
    /// Any other type (struct, matrix, array), by name. Launches check only its size and alignment.
    Other(String),
    /// A word of a `visible_function_table`: the number of functions, and then their handles ([`function_handle`]).
    Function {
        /// The function's type, such as `float (float)`.
        of: String,
        /// Names of the `[[visible]]` functions of the source.
        functions: Vec<String>,
    },
    /// The `elinvar::inbox` of a resident kernel.
    Inbox {
        /// Size of an item in bytes.
        item: u64,
        /// Size of a result in bytes.
        result: u64,
    },
    /// An `elinvar::queue`, which is followed by its slots.
    Queue {
        /// Size of a message in bytes.
        message: u64,
        /// Size of a slot in bytes.
        slot: u64,
    },
    /// `elinvar::launch_queue` of the header `<elinvar/launch>`: the queue of launches of a kernel that launches kernels.
    LaunchQueue,
}

/// The handle in a `visible_function_table` of the `[[visible]]` function with this name: its hash (FNV-1a), without the upper bit, and
/// never 0.
pub fn function_handle(name: &str) -> u32 {
    let hash =
        name.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    (hash & (u32::MAX >> 1)).max(1)
}

impl ElementType {
    /// Component type; `None` for the types that have none.
    pub const fn scalar(&self) -> Option<Scalar> {
        match self {
            Self::Scalar(s) | Self::Atomic(s) | Self::Vector { scalar: s, .. } => Some(*s),
            Self::Other(_)
            | Self::Function { .. }
            | Self::Inbox { .. }
            | Self::Queue { .. }
            | Self::LaunchQueue => None,
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
            Self::Function { of, .. } => f.write_str(of),
            Self::Inbox { .. } => f.write_str("elinvar::inbox"),
            Self::Queue { .. } => f.write_str("elinvar::queue"),
            Self::LaunchQueue => f.write_str("elinvar::launch_queue"),
        }
    }
}

/// Kind of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum ArgKind {
    /// Pointer to any number of elements: `device float*`, `constant float*`.
    Pointer,
    /// Reference to one element: `constant Params&`, `device T&`.
    Reference,
    /// Pointer to dynamic threadgroup memory; the launch sets its length.
    Threadgroup,
}

/// How a kernel may access an argument's memory: by its declared type and, once the kernel is compiled, by its code
/// ([`Signature::with_code`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub enum Access {
    /// Read only: `const`, or in the `constant` address space.
    Read,
    /// Read and write.
    ReadWrite,
}

/// An argument of a launch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Arg {
    /// Parameter name; empty if it is unnamed.
    pub name: String,
    /// How it is passed.
    pub kind: ArgKind,
    /// Index of `[[buffer(n)]]` or `[[threadgroup(n)]]`, explicit or assigned.
    pub index: u32,
    /// Pointee type.
    pub element: ElementType,
    /// Size of an element in bytes.
    pub element_size: u64,
    /// Alignment of an element in bytes.
    pub element_align: u64,
    /// How the kernel may access its memory.
    pub access: Access,
    /// Whether it is in the `constant` address space.
    pub constant: bool,
}

/// A parameter with a position or size attribute (MSL specification, "Kernel Function Input Attributes").
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Builtin {
    /// The attribute, such as `thread_position_in_grid`.
    pub attribute: String,
    /// Number of components: 1 (a scalar) to 3.
    pub dimensions: u32,
}

/// Signature of a kernel.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Signature {
    /// Name for lookups: that of `[[host_name("…")]]` if present, else the function's.
    pub name: String,
    /// Arguments of a launch, in declaration order.
    pub args: Vec<Arg>,
    /// Position and size parameters, in declaration order.
    pub builtins: Vec<Builtin>,
    /// Source file of the declaration, as diagnostics name it.
    pub file: String,
    /// Line of the declaration, from 1.
    pub line: u32,
    /// The value of `[[max_total_threads_per_threadgroup(n)]]`, if present.
    pub max_threads_per_threadgroup: Option<u32>,
    /// Facts about the compiled code. `None` before the pipeline is built, and if the driver cannot analyze the code, as on Metal
    /// without clang.
    pub code: Option<CodeFacts>,
    /// The log calls of the compiled code. Empty before the pipeline is built.
    pub logs: Vec<LogSite>,
}

/// Facts about a kernel's compiled code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct CodeFacts {
    /// Static threadgroup memory, in bytes: variables that the kernel declares.
    pub threadgroup_memory: u64,
    /// Number of threadgroup barriers in the code.
    pub barriers: u32,
    /// Number of grid barriers in the code.
    pub grid_barriers: u32,
    /// Line of the first threadgroup barrier that some threads of a simdgroup may reach and others bypass; the kernel's line, if the barrier
    /// is in another file.
    pub divergent_barrier: Option<u32>,
    /// Line of the first loop that waits for another thread to change device memory; the kernel's line, if the loop is in another file.
    pub spin_wait: Option<u32>,
    /// Number of atomic operations in the code, excluding fences.
    pub atomics: u32,
    /// Whether it uses simdgroup functions.
    pub simdgroup: bool,
    /// Bit set of arguments (bit i: argument i) that are provably written and never read.
    pub only_written: u64,
    /// Bit set of arguments (bit i: argument i) that the code may write, regardless of their declared types. Arguments from 64 on count
    /// as written.
    pub may_write: u64,
}

impl Signature {
    /// Adds facts about the compiled code. An argument that is declared `const` but that the code may write becomes
    /// [`Access::ReadWrite`].
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

    /// Whether it has a grid barrier, so that its launches must be cooperative: all threadgroups of the grid are resident at once
    /// ([`Pipeline::resident_groups`](crate::Pipeline::resident_groups)). False before the pipeline is built.
    pub fn is_cooperative(&self) -> bool {
        self.code.is_some_and(|code| code.grid_barriers > 0)
    }

    /// Index of the argument that is an inbox, which makes it a resident kernel; see [`Device::resident_queue`](crate::Device::resident_queue).
    pub fn inbox(&self) -> Option<usize> {
        self.args.iter().position(|arg| matches!(arg.element, ElementType::Inbox { .. }))
    }

    /// Index of the argument that is a launch queue, which makes it a kernel that launches kernels; see [`crate::NestedLaunch`].
    pub fn launch_queue(&self) -> Option<usize> {
        self.args.iter().position(|arg| arg.element == ElementType::LaunchQueue)
    }

    /// Number of grid dimensions that the kernel uses, 1 to 3: the largest of its position and size parameters.
    pub fn dimensions(&self) -> u32 {
        self.builtins.iter().map(|b| b.dimensions).max().unwrap_or(1)
    }
}
