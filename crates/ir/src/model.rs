//! The model: a module of globals and functions, a function of blocks, a block of instructions.
//!
//! Values and blocks are indices into their function, so a function is plain data that can be cloned
//! and edited. A value without a name is numbered when printed, as LLVM does. Attributes are kept as
//! the text they were written in; metadata nodes too, except that each instruction keeps the ids of
//! its nodes by kind.

use std::fmt;

/// A type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    Void,
    /// `iN`.
    Int(u32),
    Half,
    BFloat,
    Float,
    Double,
    /// `ptr`, `ptr addrspace(n)`.
    Ptr(u32),
    /// `<n x T>`.
    Vector(u32, Box<Type>),
    /// `[n x T]`.
    Array(u64, Box<Type>),
    /// `{ T, … }` or, packed, `<{ T, … }>`.
    Struct {
        packed: bool,
        fields: Vec<Type>,
    },
    /// `%name`, defined in [`Module::types`].
    Named(String),
    /// `metadata`, as the type of an argument of an intrinsic.
    Metadata,
}

impl Type {
    pub const I1: Type = Type::Int(1);
    pub const I8: Type = Type::Int(8);
    pub const I16: Type = Type::Int(16);
    pub const I32: Type = Type::Int(32);
    pub const I64: Type = Type::Int(64);
    pub const PTR: Type = Type::Ptr(0);

    pub fn vector(lanes: u32, element: Type) -> Type {
        Type::Vector(lanes, Box::new(element))
    }

    pub fn array(count: u64, element: Type) -> Type {
        Type::Array(count, Box::new(element))
    }

    pub fn is_int(&self) -> bool {
        matches!(self, Type::Int(_))
    }

    pub fn is_float(&self) -> bool {
        matches!(self, Type::Half | Type::BFloat | Type::Float | Type::Double)
    }

    pub fn is_ptr(&self) -> bool {
        matches!(self, Type::Ptr(_))
    }

    /// The element of a vector, else the type itself.
    pub fn scalar(&self) -> &Type {
        match self {
            Type::Vector(_, element) => element,
            other => other,
        }
    }
}

/// A value of a function: a parameter or the result of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ValueId(pub u32);

/// A block of a function: its index in [`Function::blocks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// A metadata node's number, `!12`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MetadataId(pub u32);

/// A constant.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Const {
    /// An integer, sign-extended from its width (`i1 true` is -1); see [`Const::int`].
    Int(i128),
    /// A floating-point constant in LLVM's spelling: `1.000000e+00`, `0x7FF0000000000000`, `0xH3C00`,
    /// `0xR3F80`.
    Float(String),
    Null,
    Undef,
    Poison,
    Zero,
    /// `c"…"`, as its bytes.
    String(Vec<u8>),
    /// `[T a, T b]`.
    Array(Vec<(Type, Const)>),
    /// `{ T a, U b }`; packed: `<{ … }>`.
    Struct {
        packed: bool,
        fields: Vec<(Type, Const)>,
    },
    /// `<T a, T b>`.
    Vector(Vec<(Type, Const)>),
    /// `splat (T a)`.
    Splat(Box<(Type, Const)>),
    /// `@name`.
    Global(String),
    /// `getelementptr inbounds (T, ptr base, indices)`.
    Gep {
        flags: String,
        source: Box<Type>,
        base: Box<(Type, Const)>,
        indices: Vec<(Type, Const)>,
    },
    /// Any other constant expression over one operand: `ptrtoint (ptr @a to i64)`.
    Cast {
        op: CastOp,
        from: Box<(Type, Const)>,
        to: Box<Type>,
    },
}

impl Const {
    /// An integer of the given width: truncated and sign-extended to the canonical form.
    pub fn int(width: u32, value: i128) -> Const {
        if width == 0 || width >= 128 {
            return Const::Int(value);
        }
        let shift = 128 - width;
        Const::Int((value << shift) >> shift)
    }

    /// The value of an integer constant, zero-extended from its width.
    pub fn as_unsigned(&self, width: u32) -> Option<u128> {
        match self {
            Const::Int(v) if width >= 128 => Some(*v as u128),
            Const::Int(v) => Some((*v as u128) & ((1u128 << width) - 1)),
            Const::Zero => Some(0),
            _ => None,
        }
    }
}

/// An operand of an instruction.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    Value(ValueId),
    Const(Const),
}

impl Operand {
    /// An integer constant of the given width.
    pub fn int(width: u32, value: i128) -> Operand {
        Operand::Const(Const::int(width, value))
    }

    pub fn value(&self) -> Option<ValueId> {
        match self {
            Operand::Value(v) => Some(*v),
            Operand::Const(_) => None,
        }
    }
}

impl From<ValueId> for Operand {
    fn from(v: ValueId) -> Self {
        Operand::Value(v)
    }
}

impl From<Const> for Operand {
    fn from(c: Const) -> Self {
        Operand::Const(c)
    }
}

/// An operand with its type.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Typed {
    pub ty: Type,
    pub op: Operand,
}

impl Typed {
    pub fn new(ty: Type, op: impl Into<Operand>) -> Typed {
        Typed { ty, op: op.into() }
    }
}

macro_rules! spelled {
    ($(#[$meta:meta])* $name:ident { $($variant:ident = $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($variant),* }

        impl $name {
            /// All variants, in order of declaration.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];

            /// The spelling in IR text.
            pub const fn text(self) -> &'static str {
                match self { $($name::$variant => $text),* }
            }

            /// The variant spelled so.
            pub fn parse(text: &str) -> Option<Self> {
                match text { $($text => Some($name::$variant),)* _ => None }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.text())
            }
        }
    };
}

spelled!(
    /// Two operands of one type, result of that type.
    BinaryOp {
        Add = "add", Sub = "sub", Mul = "mul", UDiv = "udiv", SDiv = "sdiv", URem = "urem", SRem = "srem",
        Shl = "shl", LShr = "lshr", AShr = "ashr", And = "and", Or = "or", Xor = "xor",
        FAdd = "fadd", FSub = "fsub", FMul = "fmul", FDiv = "fdiv", FRem = "frem",
    }
);

spelled!(
    CastOp {
        Trunc = "trunc", ZExt = "zext", SExt = "sext", FpTrunc = "fptrunc", FpExt = "fpext",
        FpToUi = "fptoui", FpToSi = "fptosi", UiToFp = "uitofp", SiToFp = "sitofp",
        PtrToInt = "ptrtoint", IntToPtr = "inttoptr", BitCast = "bitcast", AddrSpaceCast = "addrspacecast",
    }
);

spelled!(
    IntPredicate {
        Eq = "eq", Ne = "ne", Ugt = "ugt", Uge = "uge", Ult = "ult", Ule = "ule",
        Sgt = "sgt", Sge = "sge", Slt = "slt", Sle = "sle",
    }
);

impl IntPredicate {
    /// Whether it holds for two integers, given as unsigned numbers `a` and `b` and as signed numbers `x` and `y`.
    pub fn holds<U: PartialOrd, S: PartialOrd>(self, [a, b]: [U; 2], [x, y]: [S; 2]) -> bool {
        match self {
            Self::Eq => a == b,
            Self::Ne => a != b,
            Self::Ugt => a > b,
            Self::Uge => a >= b,
            Self::Ult => a < b,
            Self::Ule => a <= b,
            Self::Sgt => x > y,
            Self::Sge => x >= y,
            Self::Slt => x < y,
            Self::Sle => x <= y,
        }
    }
}

spelled!(
    FloatPredicate {
        False = "false", Oeq = "oeq", Ogt = "ogt", Oge = "oge", Olt = "olt", Ole = "ole", One = "one",
        Ord = "ord", Ueq = "ueq", Ugt = "ugt", Uge = "uge", Ult = "ult", Ule = "ule", Une = "une",
        Uno = "uno", True = "true",
    }
);

spelled!(
    Ordering {
        Unordered = "unordered", Monotonic = "monotonic", Acquire = "acquire", Release = "release",
        AcqRel = "acq_rel", SeqCst = "seq_cst",
    }
);

spelled!(
    RmwOp {
        Xchg = "xchg", Add = "add", Sub = "sub", And = "and", Nand = "nand", Or = "or", Xor = "xor",
        Max = "max", Min = "min", UMax = "umax", UMin = "umin", FAdd = "fadd", FSub = "fsub",
        FMax = "fmax", FMin = "fmin", UIncWrap = "uinc_wrap", UDecWrap = "udec_wrap",
    }
);

/// The atomic part of a load, store or other access.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Atomic {
    pub ordering: Ordering,
    /// `syncscope("…")`, without the default scope.
    pub scope: Option<String>,
}

/// What is called.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Callee {
    /// `@name`.
    Function(String),
    /// Through a pointer.
    Indirect(Operand),
}

/// An argument of a call. `metadata !…` arguments have [`Type::Metadata`] and their text in `attrs`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CallArg {
    pub ty: Type,
    /// Parameter attributes as written: `noundef`, `nonnull align 4`.
    pub attrs: String,
    pub op: Operand,
}

impl CallArg {
    /// The alignment in bytes that the attributes promise of a pointer, 1 if none.
    pub fn align(&self) -> u64 {
        let words: Vec<&str> = self.attrs.split_whitespace().collect();
        let promised = words.windows(2).find(|pair| pair[0] == "align").and_then(|pair| pair[1].parse().ok());
        promised.unwrap_or(1)
    }
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// `tail`, `musttail`, `notail` or empty.
    pub tail: String,
    /// Fast-math flags and calling convention, as written.
    pub flags: String,
    /// Return attributes as written.
    pub ret_attrs: String,
    pub ret: Type,
    /// The full function type's parameter list, for variadic callees: `(ptr, ...)`.
    pub variadic: Option<Vec<Type>>,
    pub callee: Callee,
    pub args: Vec<CallArg>,
    /// Function attributes as written: `#3`, `nounwind`.
    pub attrs: String,
    /// Operand bundles: `[ "align"(ptr %p, i64 16) ]`.
    pub bundles: Vec<Bundle>,
}

/// An operand bundle of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Bundle {
    pub tag: String,
    pub inputs: Vec<Typed>,
}

/// The operation of an instruction. Flag texts (`nuw nsw`, `inbounds`, `fast`, `exact`, `nneg`, `disjoint`,
/// `samesign`) are kept as written, one space between words, empty for none.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    Binary {
        op: BinaryOp,
        flags: String,
        ty: Type,
        a: Operand,
        b: Operand,
    },
    FNeg {
        flags: String,
        ty: Type,
        a: Operand,
    },
    ICmp {
        flags: String,
        pred: IntPredicate,
        ty: Type,
        a: Operand,
        b: Operand,
    },
    FCmp {
        flags: String,
        pred: FloatPredicate,
        ty: Type,
        a: Operand,
        b: Operand,
    },
    Cast {
        op: CastOp,
        flags: String,
        from: Typed,
        to: Type,
    },
    Select {
        flags: String,
        cond: Typed,
        a: Typed,
        b: Typed,
    },
    Phi {
        flags: String,
        ty: Type,
        incoming: Vec<(Operand, BlockId)>,
    },
    Freeze(Typed),
    Alloca {
        ty: Type,
        count: Option<Typed>,
        align: Option<u64>,
        addrspace: u32,
    },
    Load {
        ty: Type,
        ptr: Typed,
        align: Option<u64>,
        volatile: bool,
        atomic: Option<Atomic>,
    },
    Store {
        value: Typed,
        ptr: Typed,
        align: Option<u64>,
        volatile: bool,
        atomic: Option<Atomic>,
    },
    Gep {
        flags: String,
        source: Type,
        base: Typed,
        indices: Vec<Typed>,
    },
    Call(Call),
    ExtractValue {
        agg: Typed,
        path: Vec<u32>,
    },
    InsertValue {
        agg: Typed,
        value: Typed,
        path: Vec<u32>,
    },
    ExtractElement {
        vector: Typed,
        index: Typed,
    },
    InsertElement {
        vector: Typed,
        value: Typed,
        index: Typed,
    },
    ShuffleVector {
        a: Typed,
        b: Typed,
        mask: Typed,
    },
    AtomicRmw {
        op: RmwOp,
        ptr: Typed,
        value: Typed,
        align: Option<u64>,
        volatile: bool,
        atomic: Atomic,
    },
    CmpXchg {
        weak: bool,
        ptr: Typed,
        expected: Typed,
        new: Typed,
        align: Option<u64>,
        volatile: bool,
        success: Atomic,
        failure: Ordering,
    },
    Fence(Atomic),
}

/// How a block ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Term {
    Br(BlockId),
    CondBr {
        cond: Operand,
        then: BlockId,
        other: BlockId,
    },
    Switch {
        value: Typed,
        default: BlockId,
        cases: Vec<(Const, BlockId)>,
    },
    /// `ret void` when `None`.
    Ret(Option<Typed>),
    Unreachable,
}

impl Term {
    /// The blocks that may follow, in order, with repetitions.
    pub fn successors(&self) -> Vec<BlockId> {
        match self {
            Term::Br(b) => vec![*b],
            Term::CondBr { then, other, .. } => vec![*then, *other],
            Term::Switch { default, cases, .. } => {
                std::iter::once(*default).chain(cases.iter().map(|(_, b)| *b)).collect()
            }
            Term::Ret(_) | Term::Unreachable => Vec::new(),
        }
    }

    /// Apply `f` to every block that may follow.
    pub fn map_successors(&mut self, mut f: impl FnMut(BlockId) -> BlockId) {
        match self {
            Term::Br(b) => *b = f(*b),
            Term::CondBr { then, other, .. } => {
                *then = f(*then);
                *other = f(*other);
            }
            Term::Switch { default, cases, .. } => {
                *default = f(*default);
                for (_, b) in cases {
                    *b = f(*b);
                }
            }
            Term::Ret(_) | Term::Unreachable => {}
        }
    }
}

/// Metadata attached to an instruction, by kind: `!dbg !12`, `!range !4`.
pub type Attachments = Vec<(String, MetadataId)>;

/// An instruction that does not end a block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inst {
    /// `None` for instructions of type void.
    pub result: Option<ValueId>,
    pub op: Op,
    pub metadata: Attachments,
}

/// A block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Block {
    /// Its label; numbered like a value when `None`.
    pub name: Option<String>,
    pub insts: Vec<Inst>,
    pub term: Term,
    pub term_metadata: Attachments,
}

/// Name and type of a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ValueInfo {
    pub name: Option<String>,
    pub ty: Type,
}

/// A parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    pub ty: Type,
    /// As written: `nocapture noundef writeonly`.
    pub attrs: String,
    /// Its value in the body; a declaration has one too, never used.
    pub value: ValueId,
}

/// A function, or with no blocks its declaration.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Function {
    pub name: String,
    /// Everything between `define`/`declare` and the return type except return attributes: linkage,
    /// preemption, visibility, calling convention, as written.
    pub linkage: String,
    pub ret_attrs: String,
    pub ret: Type,
    pub params: Vec<Param>,
    pub variadic: bool,
    /// Everything after the parameter list, as written: `local_unnamed_addr #0 comdat align 16`.
    pub suffix: String,
    pub metadata: Attachments,
    pub values: Vec<ValueInfo>,
    pub blocks: Vec<Block>,
}

impl Function {
    /// A function without parameters and blocks.
    pub fn new(name: impl Into<String>, ret: Type) -> Function {
        Function {
            name: name.into(),
            linkage: String::new(),
            ret_attrs: String::new(),
            ret,
            params: Vec::new(),
            variadic: false,
            suffix: String::new(),
            metadata: Vec::new(),
            values: Vec::new(),
            blocks: Vec::new(),
        }
    }

    pub fn is_declaration(&self) -> bool {
        self.blocks.is_empty()
    }

    /// A new value of this type; the name is for people and may be `None`.
    pub fn new_value(&mut self, ty: Type, name: Option<&str>) -> ValueId {
        self.values.push(ValueInfo { name: name.map(str::to_owned), ty });
        ValueId(self.values.len() as u32 - 1)
    }

    /// Append a parameter.
    pub fn add_param(&mut self, ty: Type, attrs: &str, name: Option<&str>) -> ValueId {
        let value = self.new_value(ty.clone(), name);
        self.params.push(Param { ty, attrs: attrs.to_owned(), value });
        value
    }

    /// Append a block that ends in `unreachable` until its terminator is set.
    pub fn new_block(&mut self, name: Option<&str>) -> BlockId {
        self.blocks.push(Block {
            name: name.map(str::to_owned),
            insts: Vec::new(),
            term: Term::Unreachable,
            term_metadata: Vec::new(),
        });
        BlockId(self.blocks.len() as u32 - 1)
    }

    pub fn block(&self, b: BlockId) -> &Block {
        &self.blocks[b.0 as usize]
    }

    pub fn block_mut(&mut self, b: BlockId) -> &mut Block {
        &mut self.blocks[b.0 as usize]
    }

    pub fn ty(&self, v: ValueId) -> &Type {
        &self.values[v.0 as usize].ty
    }

    pub fn block_ids(&self) -> impl Iterator<Item = BlockId> + use<> {
        (0..self.blocks.len() as u32).map(BlockId)
    }
}

/// A global variable.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Global {
    pub name: String,
    /// Linkage, visibility, `unnamed_addr`, `addrspace(n)` and so on, up to `global`/`constant`.
    pub linkage: String,
    pub constant: bool,
    pub ty: Type,
    /// `None` for an external global.
    pub init: Option<Const>,
    /// `section "…"`.
    pub section: Option<String>,
    pub align: Option<u64>,
    /// Anything else after the initializer, as written: `comdat`, `partition "…"`.
    pub suffix: String,
    pub metadata: Attachments,
}

/// A line of metadata: `!12 = …` or `!llvm.module.flags = …`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MetadataNode {
    /// The text between `!` and ` = `.
    pub name: String,
    /// The text after ` = `.
    pub text: String,
}

/// A module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    pub source_filename: Option<String>,
    pub data_layout: Option<String>,
    pub triple: Option<String>,
    /// Named struct types in order; `None` for an opaque one.
    pub types: Vec<(String, Option<Type>)>,
    /// `$name = comdat any`: name and kind.
    pub comdats: Vec<(String, String)>,
    pub globals: Vec<Global>,
    pub functions: Vec<Function>,
    /// Attribute groups: number and the text between the braces.
    pub attributes: Vec<(u32, String)>,
    pub metadata: Vec<MetadataNode>,
}

impl Module {
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions.iter().find(|f| f.name == name)
    }

    pub fn global(&self, name: &str) -> Option<&Global> {
        self.globals.iter().find(|g| g.name == name)
    }
}
