//! Intrinsics: positions and sizes, barriers, simdgroup and quadgroup operations, products of simdgroup matrices, and scaling by powers
//! of two.
//!
//! The front end's headers declare each as a function `__elinvar_*`; [`Intrinsic`] is the same list as a type, with the
//! declarations. It is the whole interface between MSL's library and the back ends. The CPU back end, the PTX back end and the
//! interpreter of `verify/reference` match it without a default arm, so the compiler reports every place that lacks a new one. A
//! test of `verify/reference` compares the headers with this list.
//!
//! Fences are LLVM's `fence` instructions, not intrinsics. The headers compute positions within simdgroups and quadgroups from
//! the position in the threadgroup.

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
    /// `void ()`: `elinvar::grid_barrier`, a threadgroup barrier that waits for all threadgroups of the grid and orders all memory.
    GridBarrier,
    /// `void (uint idle, uint nanoseconds)`: a threadgroup barrier that orders all memory, at which a resident kernel's threadgroup gives up
    /// its processor: on a CPU it returns to the driver, which resumes it; on a GPU it sleeps for about this time. `idle`, a constant, says
    /// whether it has found nothing to do since the last call.
    Yield,
    /// `void (uint mem_flags)`: `simdgroup_barrier`.
    SimdgroupBarrier,
    /// An operation across a simdgroup or quadgroup.
    Group(GroupCall),
    /// `float (float a, int n)`: a · 2ⁿ, rounded once, for a from 0.5 to 2 and n from -252 to 254; NaN for NaN and any n.
    Scale,
    /// A log call, with a variable number of arguments; see [`crate::log_calls`].
    Log,
    /// `bool (const void* left, long stride, const void* right, long stride, uint kind)`: whether the device computes a product of tensors
    /// other than by the code of the headers; see [`crate::tensor_products`].
    HasTensorProduct,
    /// `void (float* elements, const void* left, long stride, const void* right, long stride, int rows, int columns, int depth, uint kind)`:
    /// the product, which the threads of the scope compute together.
    TensorProduct,
}

impl Intrinsic {
    /// The intrinsic with this function name.
    pub fn parse(name: &str) -> Option<Self> {
        let rest = name.strip_prefix(PREFIX)?;
        match rest {
            "threadgroup_barrier" => Some(Self::ThreadgroupBarrier),
            "grid_barrier" => Some(Self::GridBarrier),
            "yield" => Some(Self::Yield),
            "simdgroup_barrier" => Some(Self::SimdgroupBarrier),
            "scale" => Some(Self::Scale),
            "log" => Some(Self::Log),
            "has_tensor_product" => Some(Self::HasTensorProduct),
            "tensor_product" => Some(Self::TensorProduct),
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
            Self::GridBarrier => format!("{PREFIX}grid_barrier"),
            Self::Yield => format!("{PREFIX}yield"),
            Self::SimdgroupBarrier => format!("{PREFIX}simdgroup_barrier"),
            Self::Group(call) => format!("{PREFIX}{}", call.name()),
            Self::Scale => format!("{PREFIX}scale"),
            Self::Log => format!("{PREFIX}log"),
            Self::HasTensorProduct => format!("{PREFIX}has_tensor_product"),
            Self::TensorProduct => format!("{PREFIX}tensor_product"),
        }
    }

    /// Whether it is convergent: its effect depends on the set of threads that call it together, so calls must not be moved across control flow.
    pub fn is_convergent(self) -> bool {
        match self {
            Self::Position(_) | Self::Scale | Self::Log | Self::HasTensorProduct => false,
            Self::TensorProduct
            | Self::ThreadgroupBarrier
            | Self::GridBarrier
            | Self::Yield
            | Self::SimdgroupBarrier
            | Self::Group(_) => true,
        }
    }

    /// Whether all threads of a threadgroup wait for one another.
    pub fn is_threadgroup_barrier(self) -> bool {
        matches!(self, Self::ThreadgroupBarrier | Self::GridBarrier | Self::Yield)
    }

    /// All intrinsics of the headers; operations once for each of their groups and element types.
    pub fn all() -> impl Iterator<Item = Self> {
        let positions = Position::ALL.iter().map(|position| Self::Position(*position));
        let others = [
            Self::ThreadgroupBarrier,
            Self::GridBarrier,
            Self::Yield,
            Self::SimdgroupBarrier,
            Self::Scale,
            Self::Log,
            Self::HasTensorProduct,
            Self::TensorProduct,
        ];
        positions.chain(others).chain(GroupCall::all().map(Self::Group))
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

            /// The name without [`PREFIX`].
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$position => $name,)*
                }
            }

            /// Whether the headers declare it. Passes insert calls of the others.
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
    /// `thread_position_in_threadgroup`, the only one that differs between threads of a threadgroup.
    Thread "thread_position_in_threadgroup", Headers;
    /// `threadgroup_position_in_grid`.
    Group "threadgroup_position_in_grid", Headers;
    /// `threads_per_threadgroup`: smaller in threadgroups at the grid's edges.
    GroupSize "threads_per_threadgroup", Headers;
    /// `dispatch_threads_per_threadgroup`: the size of a full threadgroup.
    FullGroupSize "dispatch_threads_per_threadgroup", Headers;
    /// `threads_per_grid`.
    Grid "threads_per_grid", Headers;
    /// `threadgroups_per_grid`.
    Groups "threadgroups_per_grid", Headers;
    /// Size in bytes of an argument's memory, an i64; the dimension is the argument's index. For bounds checks.
    ArgumentBytes "argument_bytes", Passes;
    /// Address of the launch's fault record, without a dimension. For bounds checks.
    FaultRecord "fault_record", Passes;
    /// Address of the control block of the device's log ring, without a dimension. For log calls.
    LogRing "log_ring", Passes;
    /// The kernel's number in log records, without a dimension. For log calls.
    LogKernel "log_kernel", Passes;
    /// Address of the counter of the launch's grid barriers, without a dimension. For grid barriers on GPUs.
    GridCounter "grid_counter", Passes;
}

impl Position {
    fn parse(rest: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|position| position.name() == rest)
    }

    /// Whether its calls take the dimension or the index of an argument.
    pub(crate) const fn has_dimension(self) -> bool {
        !matches!(self, Self::FaultRecord | Self::LogRing | Self::LogKernel | Self::GridCounter)
    }

    /// The function that a pass calls for it.
    pub(crate) fn function(self) -> String {
        Intrinsic::Position(self).name()
    }
}

/// A group operation: operation, group and element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupCall {
    /// The operation.
    pub op: GroupOp,
    /// The group.
    pub group: Group,
    /// The type of the values; `None` where the declaration has [`Elements::None`].
    pub element: Option<Element>,
}

/// The group of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// 32 consecutive threads of a threadgroup.
    Simdgroup,
    /// 4 consecutive threads of a simdgroup.
    Quadgroup,
}

impl Group {
    /// Number of threads.
    pub const fn width(self) -> u32 {
        match self {
            Self::Simdgroup => SIMDGROUP,
            Self::Quadgroup => QUADGROUP,
        }
    }

    /// Prefix of its operations' names in MSL.
    const fn prefix(self) -> &'static str {
        match self {
            Self::Simdgroup => "simd_",
            Self::Quadgroup => "quad_",
        }
    }
}

macro_rules! elements {
    ($($element:ident $suffix:literal $ty:expr, $is_unsigned:literal;)*) => {
        /// Element type of an operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[allow(missing_docs)] // the names say it
        pub enum Element {
            $($element,)*
        }

        impl Element {
            /// Every type.
            pub const ALL: &[Self] = &[$(Self::$element),*];

            /// Suffix of operations' names.
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

            /// Whether it is compared and extended as an unsigned integer.
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

/// Declaration of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// The name without `simd_` or `quad_`.
    pub name: &'static str,
    /// Parameters.
    pub parameters: &'static [Parameter],
    /// Result.
    pub result: Returns,
    /// Element types.
    pub elements: Elements,
    /// Groups.
    pub groups: &'static [Group],
    /// Condition under which the result is uniform over the calling threads of a simdgroup. Results of quadgroups differ.
    pub uniform: Uniform,
}

/// A parameter of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parameter {
    /// A value of the element type.
    Value,
    /// A lane, a distance, a mask of a lane or a number of lanes: `ushort`.
    Lane,
    /// A condition: `bool`.
    Condition,
    /// A constant that selects one of the thread's two elements: `uint`.
    Index,
}

/// Result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// A value of the element type.
    Value,
    /// A bit for each lane: `ulong`.
    Mask,
    /// `bool`.
    Flag,
}

/// The element types of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// None; the name has no suffix.
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
    /// Whether it includes a type, or none.
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

/// Condition under which a result is uniform over the calling threads of a simdgroup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Uniform {
    /// Always.
    Always,
    /// If the argument with this index is uniform.
    WithArgument(usize),
    /// Not uniform in general.
    Never,
}

const BOTH: &[Group] = &[Group::Simdgroup, Group::Quadgroup];
const SIMD: &[Group] = &[Group::Simdgroup];

macro_rules! group_ops {
    ($($(#[$doc:meta])* $op:ident $name:literal ($($parameter:ident),*) -> $result:ident, $elements:ident, $groups:ident, $uniform:expr;)*) => {
        /// An operation across a simdgroup or quadgroup (MSL specification, "SIMD-Group Functions", "Quad-Group Functions",
        /// "SIMD-Group Matrix Functions"). Threads that do not call it are inactive and do not participate.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum GroupOp {
            $($(#[$doc])* $op,)*
        }

        impl GroupOp {
            /// Every operation.
            pub const ALL: &[Self] = &[$(Self::$op),*];

            /// Its declaration.
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
    /// Ballot: a bit for each active lane for which a condition holds.
    Ballot "ballot" (Condition) -> Mask, None, BOTH, Uniform::Always;
    /// Whether the thread is the first active lane.
    IsFirst "is_first" () -> Flag, None, BOTH, Uniform::Never;
    /// Broadcast of a lane's value; the lane is uniform.
    Broadcast "broadcast" (Value, Lane) -> Value, All, BOTH, Uniform::WithArgument(1);
    /// The value of the first active lane.
    BroadcastFirst "broadcast_first" (Value) -> Value, All, BOTH, Uniform::Always;
    /// The value of a lane.
    Shuffle "shuffle" (Value, Lane) -> Value, All, BOTH, Uniform::WithArgument(1);
    /// The value of the lane whose index is the own index xor a mask.
    ShuffleXor "shuffle_xor" (Value, Lane) -> Value, All, BOTH, Uniform::Never;
    /// The value of the lane `delta` below; the own value if there is none.
    ShuffleUp "shuffle_up" (Value, Lane) -> Value, All, BOTH, Uniform::Never;
    /// The value of the lane `delta` above; the own value if there is none.
    ShuffleDown "shuffle_down" (Value, Lane) -> Value, All, BOTH, Uniform::Never;
    /// [`GroupOp::ShuffleUp`] that wraps around.
    ShuffleRotateUp "shuffle_rotate_up" (Value, Lane) -> Value, All, BOTH, Uniform::Never;
    /// [`GroupOp::ShuffleDown`] that wraps around.
    ShuffleRotateDown "shuffle_rotate_down" (Value, Lane) -> Value, All, BOTH, Uniform::Never;
    /// A shift up within segments of lanes, filled from the last lanes of a second value's segment.
    ShuffleAndFillUp "shuffle_and_fill_up" (Value, Value, Lane, Lane) -> Value, All, BOTH, Uniform::Never;
    /// A shift down within segments of lanes, filled from the first lanes of a second value's segment.
    ShuffleAndFillDown "shuffle_and_fill_down" (Value, Value, Lane, Lane) -> Value, All, BOTH, Uniform::Never;
    /// The sum over active lanes.
    Sum "sum" (Value) -> Value, Numbers, BOTH, Uniform::Always;
    /// The product over active lanes.
    Product "product" (Value) -> Value, Numbers, BOTH, Uniform::Always;
    /// The minimum over active lanes.
    Min "min" (Value) -> Value, Numbers, BOTH, Uniform::Always;
    /// The maximum over active lanes.
    Max "max" (Value) -> Value, Numbers, BOTH, Uniform::Always;
    /// The bitwise and over active lanes.
    And "and" (Value) -> Value, Integers, BOTH, Uniform::Always;
    /// The bitwise or over active lanes.
    Or "or" (Value) -> Value, Integers, BOTH, Uniform::Always;
    /// The bitwise xor over active lanes.
    Xor "xor" (Value) -> Value, Integers, BOTH, Uniform::Always;
    /// Inclusive prefix sum over active lanes.
    PrefixInclusiveSum "prefix_inclusive_sum" (Value) -> Value, Numbers, BOTH, Uniform::Never;
    /// Exclusive prefix sum over active lanes.
    PrefixExclusiveSum "prefix_exclusive_sum" (Value) -> Value, Numbers, BOTH, Uniform::Never;
    /// Inclusive prefix product over active lanes.
    PrefixInclusiveProduct "prefix_inclusive_product" (Value) -> Value, Numbers, BOTH, Uniform::Never;
    /// Exclusive prefix product over active lanes.
    PrefixExclusiveProduct "prefix_exclusive_product" (Value) -> Value, Numbers, BOTH, Uniform::Never;
    /// One of the thread's two elements of `a * b + c`, for 8x8 matrices of which each lane holds two elements.
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

/// Scope of a reduction, among the active lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Extent {
    /// All lanes: a reduction.
    All,
    /// Lanes up to the own one: an inclusive scan.
    Inclusive,
    /// Lanes before the own one: an exclusive scan.
    Exclusive,
}

impl GroupOp {
    /// The operation and its scope, if it is a reduction or scan.
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

    /// All declared operations.
    pub fn all() -> impl Iterator<Item = Self> {
        let elements = || std::iter::once(None).chain(Element::ALL.iter().copied().map(Some));
        let of = move |op: GroupOp| {
            BOTH.iter()
                .flat_map(move |group| elements().map(move |element| Self { op, group: *group, element }))
        };
        GroupOp::ALL.iter().copied().flat_map(of).filter(|call| call.is_declared())
    }

    /// The name without [`PREFIX`].
    pub fn name(self) -> String {
        let suffix = self.element.map_or(String::new(), |element| format!("_{}", element.suffix()));
        format!("{}{}{suffix}", self.group.prefix(), self.op.declaration().name)
    }

    /// Condition under which the result is uniform over the calling threads of a simdgroup.
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
