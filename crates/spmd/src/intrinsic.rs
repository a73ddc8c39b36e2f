//! Intrinsics: what a thread may ask of its launch and its group. Positions and sizes, barriers, operations across a simdgroup or
//! quadgroup, products of simdgroup matrices.
//!
//! The front end's headers declare each as a function `__elinvar_*`; [`Intrinsic`] is the same list as a type, with its declarations. It
//! is the whole interface between MSL's library and the compilers behind it. The vector backend, the PTX backend and the interpreter of
//! `verify/reference` match it without a default arm, so that a new one names every place that lacks it. That the headers declare exactly
//! these is a test of `verify/reference`.
//!
//! Fences are LLVM's `fence` and no intrinsics. Positions within simdgroups and quadgroups are computed by the headers, from a thread's
//! place in its threadgroup.

use elinvar_ir::Type;

/// The prefix of every intrinsic's name.
pub const PREFIX: &str = "__elinvar_";

/// Threads of a simdgroup.
pub const SIMDGROUP: u32 = 32;

/// Threads of a quadgroup.
pub const QUADGROUP: u32 = 4;

/// Bits of a barrier's `mem_flags` that order memory beyond the threadgroup's own: device and texture.
pub const DEVICE_FLAGS: u128 = 1 | 4;

/// A function of the headers that the compilers implement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Intrinsic {
    /// `uint (uint dimension)`: a position or size.
    Position(Position),
    /// `void (uint mem_flags)`: `threadgroup_barrier`.
    ThreadgroupBarrier,
    /// `void (uint mem_flags)`: `simdgroup_barrier`.
    SimdgroupBarrier,
    /// An operation across a simdgroup or quadgroup.
    Group(GroupCall),
}

impl Intrinsic {
    /// The intrinsic that a function's name stands for.
    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(PREFIX)?;
        match rest {
            "threadgroup_barrier" => Some(Self::ThreadgroupBarrier),
            "simdgroup_barrier" => Some(Self::SimdgroupBarrier),
            _ => {
                Position::parse(rest).map(Self::Position).or_else(|| GroupCall::parse(rest).map(Self::Group))
            }
        }
    }

    /// The function's name.
    pub fn name(self) -> String {
        match self {
            Self::Position(position) => format!("{PREFIX}{}", position.name()),
            Self::ThreadgroupBarrier => format!("{PREFIX}threadgroup_barrier"),
            Self::SimdgroupBarrier => format!("{PREFIX}simdgroup_barrier"),
            Self::Group(call) => format!("{PREFIX}{}", call.name()),
        }
    }

    /// Whether its effect depends on which threads call it together, so that no pass may move a call across control flow.
    pub fn is_convergent(self) -> bool {
        match self {
            Self::Position(_) => false,
            Self::ThreadgroupBarrier | Self::SimdgroupBarrier | Self::Group(_) => true,
        }
    }

    /// Every intrinsic of the headers, each operation once for each group and element type that it has.
    pub fn all() -> impl Iterator<Item = Self> {
        let positions = Position::ALL.iter().map(|position| Self::Position(*position));
        let barriers = [Self::ThreadgroupBarrier, Self::SimdgroupBarrier];
        positions.chain(barriers).chain(GroupCall::all().map(Self::Group))
    }
}

macro_rules! positions {
    ($($(#[$doc:meta])* $position:ident $name:literal, $from:ident;)*) => {
        /// A position or a size, of the thread, its threadgroup or the launch.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Position {
            $($(#[$doc])* $position,)*
        }

        impl Position {
            /// Every position.
            pub const ALL: &[Self] = &[$(Self::$position),*];

            /// The name behind [`PREFIX`].
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$position => $name,)*
                }
            }

            /// Whether the headers declare it. The others are calls that passes insert.
            pub const fn is_declared(self) -> bool {
                match self {
                    $(Self::$position => matches!(Source::$from, Source::Headers),)*
                }
            }
        }
    };
}

/// Where calls come from.
enum Source {
    Headers,
    Passes,
}

positions! {
    /// `thread_position_in_threadgroup`. The one that differs between threads of a threadgroup.
    Thread "thread_position_in_threadgroup", Headers;
    /// `threadgroup_position_in_grid`.
    Group "threadgroup_position_in_grid", Headers;
    /// `threads_per_threadgroup`: smaller in the groups at the grid's far edges.
    GroupSize "threads_per_threadgroup", Headers;
    /// `dispatch_threads_per_threadgroup`: the size of a full group.
    FullGroupSize "dispatch_threads_per_threadgroup", Headers;
    /// `threads_per_grid`.
    Grid "threads_per_grid", Headers;
    /// `threadgroups_per_grid`.
    Groups "threadgroups_per_grid", Headers;
    /// Size in bytes of an argument's memory, an i64; the dimension is the argument's position. For bounds checks.
    ArgumentBytes "argument_bytes", Passes;
    /// Address of the launch's fault record, without a dimension. For bounds checks.
    FaultRecord "fault_record", Passes;
}

impl Position {
    fn parse(rest: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|position| position.name() == rest)
    }

    /// The function that a pass calls for it.
    pub(crate) fn function(self) -> String {
        Intrinsic::Position(self).name()
    }
}

/// A call of an operation across a group: which one, of which group, on values of which type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupCall {
    /// The operation.
    pub op: GroupOp,
    /// The threads that take part.
    pub group: Group,
    /// The type of the values; `None` where the declaration has [`Elements::None`].
    pub element: Option<Element>,
}

/// The threads that take part in an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// 32 consecutive threads of a threadgroup.
    Simdgroup,
    /// 4 consecutive threads of a simdgroup.
    Quadgroup,
}

impl Group {
    /// Threads of it.
    pub const fn width(self) -> u32 {
        match self {
            Self::Simdgroup => SIMDGROUP,
            Self::Quadgroup => QUADGROUP,
        }
    }

    /// What the names of its operations begin with in MSL.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Simdgroup => "simd_",
            Self::Quadgroup => "quad_",
        }
    }
}

macro_rules! elements {
    ($($element:ident $suffix:literal $ty:expr, $is_unsigned:literal;)*) => {
        /// The type of the values of an operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // the names say it
        pub enum Element {
            $($element,)*
        }

        impl Element {
            /// Every type.
            pub const ALL: &[Self] = &[$(Self::$element),*];

            /// What ends the names of operations on it.
            pub const fn suffix(self) -> &'static str {
                match self {
                    $(Self::$element => $suffix,)*
                }
            }

            /// The type in IR.
            pub const fn ty(self) -> Type {
                match self {
                    $(Self::$element => $ty,)*
                }
            }

            /// Whether it is compared, and extended, as an unsigned integer.
            pub const fn is_unsigned(self) -> bool {
                match self {
                    $(Self::$element => $is_unsigned,)*
                }
            }
        }
    };
}

elements! {
    Bool "b8" Type::I1, true;
    I8 "i8" Type::I8, false;
    U8 "u8" Type::I8, true;
    I16 "i16" Type::I16, false;
    U16 "u16" Type::I16, true;
    I32 "i32" Type::I32, false;
    U32 "u32" Type::I32, true;
    I64 "i64" Type::I64, false;
    U64 "u64" Type::I64, true;
    F16 "f16" Type::Half, false;
    BF16 "bf16" Type::BFloat, false;
    F32 "f32" Type::Float, false;
}

/// How an operation is declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The name, behind `simd_` or `quad_`.
    pub name: &'static str,
    /// What is passed.
    pub parameters: &'static [Parameter],
    /// What is returned.
    pub result: Returns,
    /// The types that it is declared for.
    pub elements: Elements,
    /// The groups that have it.
    pub groups: &'static [Group],
    /// When all threads of a simdgroup that call it together get one value. Quadgroups of a simdgroup get different ones.
    pub uniform: Uniform,
}

/// What is passed to an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// A value of the element type.
    Value,
    /// A lane, a distance, a mask of a lane or a number of lanes: `ushort`.
    Lane,
    /// A condition: `bool`.
    Condition,
    /// A constant that selects an element of the thread's two: `uint`.
    Index,
}

/// What an operation returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// A value of the element type.
    Value,
    /// A bit per lane: `ulong`.
    Mask,
    /// `bool`.
    Flag,
}

/// The element types of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// It has none, and no suffix.
    None,
    /// All of [`Element`].
    All,
    /// All but `bool`.
    Numbers,
    /// Integers.
    Integers,
    /// `float`.
    Float,
}

impl Elements {
    /// Whether a type, or none, is among them.
    pub fn contains(self, element: Option<Element>) -> bool {
        match (self, element) {
            (Self::None, element) => element.is_none(),
            (_, None) => false,
            (Self::All, Some(_)) => true,
            (Self::Numbers, Some(element)) => element != Element::Bool,
            (Self::Integers, Some(element)) => element != Element::Bool && !element.ty().is_float(),
            (Self::Float, Some(element)) => element == Element::F32,
        }
    }
}

/// When a result is the same for all threads of a simdgroup that call together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uniform {
    /// Always.
    Always,
    /// Where the argument with this index is.
    WithArgument(usize),
    /// It differs in general.
    Never,
}

const BOTH: &[Group] = &[Group::Simdgroup, Group::Quadgroup];
const SIMD: &[Group] = &[Group::Simdgroup];

macro_rules! group_ops {
    ($($(#[$doc:meta])* $op:ident $name:literal ($($parameter:ident),*) -> $result:ident, $elements:ident, $groups:ident, $uniform:expr;)*) => {
        /// An operation across a simdgroup or quadgroup (MSL specification, "SIMD-Group Functions", "Quad-Group Functions",
        /// "SIMD-Group Matrix Functions"). Threads that do not call it are inactive: they take no part.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum GroupOp {
            $($(#[$doc])* $op,)*
        }

        impl GroupOp {
            /// Every operation.
            pub const ALL: &[Self] = &[$(Self::$op),*];

            /// How it is declared.
            pub const fn declaration(self) -> Declaration {
                match self {
                    $(Self::$op => Declaration {
                        name: $name,
                        parameters: &[$(Parameter::$parameter),*],
                        result: Returns::$result,
                        elements: Elements::$elements,
                        groups: $groups,
                        uniform: $uniform,
                    },)*
                }
            }
        }
    };
}

group_ops! {
    /// The active lanes for which a condition holds, by bit.
    Ballot "ballot" (Condition) -> Mask, None, BOTH, Uniform::Always;
    /// Whether the thread is the first active one.
    IsFirst "is_first" () -> Flag, None, BOTH, Uniform::Never;
    /// The value of a lane, which is the same for all threads.
    Broadcast "broadcast" (Value, Lane) -> Value, All, BOTH, Uniform::WithArgument(1);
    /// The value of the first active lane.
    BroadcastFirst "broadcast_first" (Value) -> Value, All, BOTH, Uniform::Always;
    /// The value of a lane.
    Shuffle "shuffle" (Value, Lane) -> Value, All, BOTH, Uniform::WithArgument(1);
    /// The value of the lane whose index is the own one xor a mask.
    ShuffleXor "shuffle_xor" (Value, Lane) -> Value, All, BOTH, Uniform::Never;
    /// The value of a lane with a lower index; below the first lane the own value.
    ShuffleUp "shuffle_up" (Value, Lane) -> Value, All, BOTH, Uniform::Never;
    /// The value of a lane with a higher index; behind the last lane the own value.
    ShuffleDown "shuffle_down" (Value, Lane) -> Value, All, BOTH, Uniform::Never;
    /// [`GroupOp::ShuffleUp`], from the last lane on below the first.
    ShuffleRotateUp "shuffle_rotate_up" (Value, Lane) -> Value, All, BOTH, Uniform::Never;
    /// [`GroupOp::ShuffleDown`], from the first lane on behind the last.
    ShuffleRotateDown "shuffle_rotate_down" (Value, Lane) -> Value, All, BOTH, Uniform::Never;
    /// A shift up within segments of lanes, filled from the last lanes of a second value's segment.
    ShuffleAndFillUp "shuffle_and_fill_up" (Value, Value, Lane, Lane) -> Value, All, BOTH, Uniform::Never;
    /// A shift down within segments of lanes, filled from the first lanes of a second value's segment.
    ShuffleAndFillDown "shuffle_and_fill_down" (Value, Value, Lane, Lane) -> Value, All, BOTH, Uniform::Never;
    /// The sum over active lanes.
    Sum "sum" (Value) -> Value, Numbers, BOTH, Uniform::Always;
    /// The product over active lanes.
    Product "product" (Value) -> Value, Numbers, BOTH, Uniform::Always;
    /// The least value of active lanes.
    Min "min" (Value) -> Value, Numbers, BOTH, Uniform::Always;
    /// The greatest value of active lanes.
    Max "max" (Value) -> Value, Numbers, BOTH, Uniform::Always;
    /// The bitwise and over active lanes.
    And "and" (Value) -> Value, Integers, BOTH, Uniform::Always;
    /// The bitwise or over active lanes.
    Or "or" (Value) -> Value, Integers, BOTH, Uniform::Always;
    /// The bitwise xor over active lanes.
    Xor "xor" (Value) -> Value, Integers, BOTH, Uniform::Always;
    /// The sum over active lanes up to the own one.
    PrefixInclusiveSum "prefix_inclusive_sum" (Value) -> Value, Numbers, BOTH, Uniform::Never;
    /// The sum over active lanes before the own one.
    PrefixExclusiveSum "prefix_exclusive_sum" (Value) -> Value, Numbers, BOTH, Uniform::Never;
    /// The product over active lanes up to the own one.
    PrefixInclusiveProduct "prefix_inclusive_product" (Value) -> Value, Numbers, BOTH, Uniform::Never;
    /// The product over active lanes before the own one.
    PrefixExclusiveProduct "prefix_exclusive_product" (Value) -> Value, Numbers, BOTH, Uniform::Never;
    /// An element of the thread's two in `a * b + c` of 8x8 matrices, each of which the lanes hold two elements of.
    MatrixMultiplyAccumulate "matrix_multiply_accumulate"
        (Value, Value, Value, Value, Value, Value, Index) -> Value, Float, SIMD, Uniform::Never;
}

/// The operation of a reduction or scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs)] // the names say it
pub enum Reduction {
    Sum,
    Product,
    Min,
    Max,
    And,
    Or,
    Xor,
}

/// The lanes that a reduction takes in, of those that are active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extent {
    /// All of the group.
    All,
    /// Those up to the own one: an inclusive scan.
    Inclusive,
    /// Those before the own one: an exclusive scan.
    Exclusive,
}

impl GroupOp {
    /// What it reduces and over which lanes, if it is a reduction or scan.
    pub const fn reduction(self) -> Option<(Reduction, Extent)> {
        match self {
            Self::Sum => Some((Reduction::Sum, Extent::All)),
            Self::Product => Some((Reduction::Product, Extent::All)),
            Self::Min => Some((Reduction::Min, Extent::All)),
            Self::Max => Some((Reduction::Max, Extent::All)),
            Self::And => Some((Reduction::And, Extent::All)),
            Self::Or => Some((Reduction::Or, Extent::All)),
            Self::Xor => Some((Reduction::Xor, Extent::All)),
            Self::PrefixInclusiveSum => Some((Reduction::Sum, Extent::Inclusive)),
            Self::PrefixExclusiveSum => Some((Reduction::Sum, Extent::Exclusive)),
            Self::PrefixInclusiveProduct => Some((Reduction::Product, Extent::Inclusive)),
            Self::PrefixExclusiveProduct => Some((Reduction::Product, Extent::Exclusive)),
            Self::Ballot
            | Self::IsFirst
            | Self::Broadcast
            | Self::BroadcastFirst
            | Self::Shuffle
            | Self::ShuffleXor
            | Self::ShuffleUp
            | Self::ShuffleDown
            | Self::ShuffleRotateUp
            | Self::ShuffleRotateDown
            | Self::ShuffleAndFillUp
            | Self::ShuffleAndFillDown
            | Self::MatrixMultiplyAccumulate => None,
        }
    }
}

impl GroupCall {
    fn parse(rest: &str) -> Option<Self> {
        let group = BOTH.iter().copied().find(|group| rest.starts_with(group.prefix()))?;
        let rest = &rest[group.prefix().len()..];
        let named = |name: &str| GroupOp::ALL.iter().copied().find(|op| op.declaration().name == name);
        let call = match named(rest) {
            Some(op) => Self { op, group, element: None },
            None => {
                let (name, suffix) = rest.rsplit_once('_')?;
                let element = Element::ALL.iter().copied().find(|element| element.suffix() == suffix)?;
                Self { op: named(name)?, group, element: Some(element) }
            }
        };
        call.is_declared().then_some(call)
    }

    fn is_declared(self) -> bool {
        let declaration = self.op.declaration();
        declaration.groups.contains(&self.group) && declaration.elements.contains(self.element)
    }

    /// Every call that is declared.
    pub fn all() -> impl Iterator<Item = Self> {
        let elements = || std::iter::once(None).chain(Element::ALL.iter().copied().map(Some));
        let of = move |op: GroupOp| {
            BOTH.iter()
                .flat_map(move |group| elements().map(move |element| Self { op, group: *group, element }))
        };
        GroupOp::ALL.iter().copied().flat_map(of).filter(|call| call.is_declared())
    }

    /// The name behind [`PREFIX`].
    pub fn name(self) -> String {
        let suffix = self.element.map_or(String::new(), |element| format!("_{}", element.suffix()));
        format!("{}{}{suffix}", self.group.prefix(), self.op.declaration().name)
    }

    /// When all threads of a simdgroup that call it together get one value.
    pub fn uniform(self) -> Uniform {
        match self.group {
            Group::Simdgroup => self.op.declaration().uniform,
            Group::Quadgroup => Uniform::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_intrinsic_has_a_name_of_its_own_and_is_found_by_it() {
        let mut names = HashSet::new();
        for intrinsic in Intrinsic::all() {
            assert_eq!(Intrinsic::parse(&intrinsic.name()), Some(intrinsic));
            assert!(names.insert(intrinsic.name()), "{} twice", intrinsic.name());
        }
        assert!(names.contains("__elinvar_quad_prefix_inclusive_sum_bf16"));
        assert!(names.contains("__elinvar_simd_is_first"));
        assert!(names.contains("__elinvar_threads_per_grid"));
    }

    #[test]
    fn what_is_not_declared_is_no_intrinsic() {
        for name in [
            "__elinvar_simd_sum",
            "__elinvar_simd_sum_b8",
            "__elinvar_simd_and_f32",
            "__elinvar_simd_ballot_u32",
            "__elinvar_quad_matrix_multiply_accumulate_f32",
            "__elinvar_quad_barrier",
            "simd_sum_f32",
        ] {
            assert_eq!(Intrinsic::parse(name), None, "{name}");
        }
    }

    #[test]
    fn results_are_uniform_across_simdgroups_only() {
        let uniform = |name| match Intrinsic::parse(name) {
            Some(Intrinsic::Group(call)) => call.uniform(),
            other => panic!("{other:?}"),
        };
        assert_eq!(uniform("__elinvar_simd_sum_f32"), Uniform::Always);
        assert_eq!(uniform("__elinvar_quad_sum_f32"), Uniform::Never);
        assert_eq!(uniform("__elinvar_simd_shuffle_f32"), Uniform::WithArgument(1));
        assert_eq!(uniform("__elinvar_simd_prefix_exclusive_sum_i8"), Uniform::Never);
    }
}
