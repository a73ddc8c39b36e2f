//! [`Arg`] and [`Args`]: arguments of a launch.
//!
//! An `Arg` is created from a buffer reference, a scalar, a struct or a size. It has the host's element type and whether the
//! kernel may write, and is independent of the kernel; [`crate::launch::bind`] validates it against the signature.

use std::any::{TypeId, type_name};

use bytemuck::Pod;
use elinvar_driver::{Dim3, InlineBytes, Scalar};
use half::{bf16, f16};
use smallvec::{SmallVec, smallvec};

use crate::memory::span::Span;
use crate::{Buffer, BufferSlice, BufferSliceMut};

/// An argument of a launch.
#[derive(Clone)]
pub struct Arg {
    pub(crate) value: Value,
}

#[derive(Clone)]
pub(crate) enum Value {
    Memory {
        span: Span,
        element: Element,
        writable: bool,
    },
    Bytes {
        bytes: InlineBytes,
        element: Element,
    },
    Threadgroup(u64),
    Size(Dim3),
    Unbound,
    /// Names of the functions of a table.
    Functions(Vec<String>),
    /// Not an argument: memory that the kernel accesses through an address. `None` if it is not memory.
    Use(Option<(Span, bool)>),
}

/// The host's element type, for comparison with MSL's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Element {
    /// An MSL scalar, or an array of 2 to 4 of them.
    Scalars { scalar: Scalar, lanes: u32, name: &'static str },
    /// `f64`, which MSL lacks.
    Double,
    /// Any other type without padding.
    Pod { name: &'static str, size: u64 },
    /// Bytes of any type.
    Raw,
    /// The inbox of a resident kernel.
    Inbox,
    /// The launch queue of a kernel that launches kernels.
    LaunchQueue,
    /// A queue of messages of this size.
    Queue { message: u64 },
}

impl Element {
    pub(crate) fn of<T: Pod>() -> Self {
        let name = type_name::<T>();
        let id = TypeId::of::<T>();
        macro_rules! scalars {
            ($($host:ty => $scalar:ident),*) => {$(
                for (lanes, known) in [
                    (1, TypeId::of::<$host>()),
                    (2, TypeId::of::<[$host; 2]>()),
                    (3, TypeId::of::<[$host; 3]>()),
                    (4, TypeId::of::<[$host; 4]>()),
                ] {
                    if id == known {
                        return Self::Scalars { scalar: Scalar::$scalar, lanes, name };
                    }
                }
            )*};
        }
        scalars!(i8 => I8, u8 => U8, i16 => I16, u16 => U16, i32 => I32, u32 => U32, i64 => I64, u64 => U64);
        scalars!(f16 => F16, bf16 => BF16, f32 => F32);
        if id == TypeId::of::<f64>() {
            return Self::Double;
        }
        Self::Pod { name, size: size_of::<T>() as u64 }
    }
}

impl Arg {
    /// A value for a `constant T&` of the same size. Copied.
    pub fn value<T: Pod>(value: &T) -> Self {
        Self::values(std::slice::from_ref(value))
    }

    /// Values for a pointer that the kernel only reads, such as `constant float*`. Copied; use a buffer for more than a few KiB.
    pub fn values<T: Pod>(values: &[T]) -> Self {
        let bytes = InlineBytes::from_slice(bytemuck::cast_slice(values));
        Self { value: Value::Bytes { bytes, element: Element::of::<T>() } }
    }

    /// A value as raw bytes, of any type. The length must be that of the kernel's type.
    pub fn bytes(bytes: impl AsRef<[u8]>) -> Self {
        let bytes = InlineBytes::from_slice(bytes.as_ref());
        Self { value: Value::Bytes { bytes, element: Element::Raw } }
    }

    /// No memory, for a buffer that the kernel does not access in this launch, as a `buffer(n)` that the program does not set in Metal.
    /// A pointer is null (on Metal devices, to one element), a reference is to zeros; not for threadgroup memory.
    ///
    /// A checked kernel that accesses memory by the null pointer faults, with the argument in the message. What another kernel's access
    /// does depends on the device: on a CPU it ends the process, on an NVIDIA GPU it is an error that loses the device.
    ///
    /// ```no_run
    /// # fn main() -> elinvar::Result<()> {
    /// # use elinvar::{Arg, Device, Grid, Source};
    /// # let device = Device::system_default()?;
    /// # let stream = device.stream()?;
    /// # let (x, mut y) = (device.buffer::<f32>(4)?, device.buffer::<f32>(4)?);
    /// // kernel void linear(device const float* x, device const float* bias, constant bool& has_bias, device float* y, …)
    /// # let kernel = device.compile(Source::msl("…"))?.kernel("linear")?;
    /// // SAFETY: without `has_bias`, the kernel does not read `bias`.
    /// unsafe { kernel.launch(&stream, Grid::threads(4), (&x, Arg::unbound(), false, &mut y)) }?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn unbound() -> Self {
        Self { value: Value::Unbound }
    }

    /// The functions of a `visible_function_table`, by their names in the source, where they are `[[visible]]`.
    ///
    /// A call of a function of another type than the table's, or of an unbound table, has no effect and returns zero. Unsupported on Metal
    /// devices.
    ///
    /// ```no_run
    /// # fn main() -> elinvar::Result<()> {
    /// # use elinvar::{Arg, Device, Grid, Source};
    /// # let device = Device::system_default()?;
    /// # let stream = device.stream()?;
    /// # let mut x = device.buffer::<f32>(4)?;
    /// // [[visible]] float twice(float x) { return 2 * x; }
    /// // [[visible]] float square(float x) { return x * x; }
    /// // kernel void map(visible_function_table<float(float)> f, device float* x, constant uint& which, uint i …) { x[i] = f[which](x[i]); }
    /// # let kernel = device.compile(Source::msl("…"))?.kernel("map")?;
    /// // SAFETY: the table has two functions.
    /// unsafe { kernel.launch(&stream, Grid::threads(4), (Arg::functions(["twice", "square"]), &mut x, 1_u32)) }?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn functions<N: Into<String>>(names: impl IntoIterator<Item = N>) -> Self {
        Self { value: Value::Functions(names.into_iter().map(Into::into).collect()) }
    }

    /// Sets the element type of a `Buffer<u8>`, a slice of one, or [`Arg::bytes`], if it is known at run time only. Replaces the
    /// element type of any other argument.
    #[must_use]
    pub fn of(mut self, scalar: Scalar) -> Self {
        let declared = Element::Scalars { scalar, lanes: 1, name: scalar.msl_name() };
        match &mut self.value {
            Value::Memory { element, .. } | Value::Bytes { element, .. } => *element = declared,
            Value::Threadgroup(_) | Value::Size(_) | Value::Unbound | Value::Functions(_) | Value::Use(_) => {
            }
        }
        self
    }

    /// A buffer or slice that the kernel accesses through an address in the memory of its arguments ([`Buffer::gpu_address`]);
    /// `useResource(_:usage:)` in Metal. `&buffer` declares reads, `&mut buffer` reads and writes. May be anywhere in the list,
    /// and is not an argument of the kernel.
    ///
    /// The launch keeps the buffer alive and tracks its use as that of an argument. The use of a buffer that is accessed through
    /// an address and not declared is not tracked.
    ///
    /// ```no_run
    /// # fn main() -> elinvar::Result<()> {
    /// # use elinvar::{Arg, Device, Grid, Source};
    /// # let device = Device::system_default()?;
    /// # let stream = device.stream()?;
    /// # let (a, mut b) = (device.buffer::<f32>(4)?, device.buffer::<f32>(4)?);
    /// // struct Args { device const float* a; device float* b; };
    /// // kernel void copy(constant Args& args [[buffer(0)]], uint i [[thread_position_in_grid]])
    /// # let kernel = device.compile(Source::msl("…"))?.kernel("copy")?;
    /// let args = [a.gpu_address()?, b.gpu_address()?];
    /// // SAFETY: the kernel reads four elements of `a` and writes four of `b`.
    /// unsafe {
    ///     kernel.launch(
    ///         &stream,
    ///         Grid::threads(4),
    ///         (Arg::value(&args), Arg::use_resource(&a), Arg::use_resource(&mut b)),
    ///     )
    /// }?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn use_resource(buffer: impl Into<Self>) -> Self {
        let used = match buffer.into().value {
            Value::Memory { span, writable, .. } => Some((span, writable)),
            Value::Use(used) => used,
            Value::Bytes { .. }
            | Value::Threadgroup(_)
            | Value::Size(_)
            | Value::Unbound
            | Value::Functions(_) => None,
        };
        Self { value: Value::Use(used) }
    }

    fn memory<T: Pod>(span: &Span, writable: bool) -> Self {
        Self { value: Value::Memory { span: span.clone(), element: Element::of::<T>(), writable } }
    }
}

/// Dynamic threadgroup memory for a `threadgroup T*` argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Threadgroup {
    bytes: u64,
}

impl Threadgroup {
    /// `bytes` bytes.
    pub const fn bytes(bytes: usize) -> Self {
        Self { bytes: bytes as u64 }
    }

    /// Memory for `count` elements of type `T`.
    pub const fn of<T>(count: usize) -> Self {
        Self::bytes(count.saturating_mul(size_of::<T>()))
    }
}

impl From<Threadgroup> for Arg {
    fn from(memory: Threadgroup) -> Self {
        Self { value: Value::Threadgroup(memory.bytes) }
    }
}

impl From<Dim3> for Arg {
    /// A `uint3` argument, or three consecutive `uint` arguments, according to the signature.
    fn from(size: Dim3) -> Self {
        Self { value: Value::Size(size) }
    }
}

impl From<bool> for Arg {
    fn from(value: bool) -> Self {
        Self::bytes([u8::from(value)]).of(Scalar::Bool)
    }
}

macro_rules! from_scalars {
    ($($host:ty),*) => {$(
        impl From<$host> for Arg {
            fn from(value: $host) -> Self {
                Self::value(&value)
            }
        }
    )*};
}
from_scalars!(i8, u8, i16, u16, i32, u32, i64, u64, f16, bf16, f32);

impl From<f64> for Arg {
    /// Always rejected by the launch, with kernel and argument in the message: MSL has no `double`. Exists so that a literal such
    /// as `2.0` gets that message instead of a type error.
    fn from(value: f64) -> Self {
        Self::value(&value)
    }
}

impl<T: Pod> From<&Buffer<T>> for Arg {
    /// Read access.
    fn from(buffer: &Buffer<T>) -> Self {
        Self::memory::<T>(&buffer.span, false)
    }
}

impl<T: Pod> From<&mut Buffer<T>> for Arg {
    /// Read and write access.
    fn from(buffer: &mut Buffer<T>) -> Self {
        Self::memory::<T>(&buffer.span, true)
    }
}

impl<T: Pod> From<BufferSlice<'_, T>> for Arg {
    /// Read access.
    fn from(slice: BufferSlice<'_, T>) -> Self {
        Self::memory::<T>(&slice.span, false)
    }
}

impl<T: Pod> From<&BufferSlice<'_, T>> for Arg {
    /// Read access.
    fn from(slice: &BufferSlice<'_, T>) -> Self {
        Self::memory::<T>(&slice.span, false)
    }
}

impl<T: Pod> From<BufferSliceMut<'_, T>> for Arg {
    /// Read and write access.
    fn from(slice: BufferSliceMut<'_, T>) -> Self {
        Self::memory::<T>(&slice.span, true)
    }
}

impl<T: Pod> From<&BufferSliceMut<'_, T>> for Arg {
    /// Read access.
    fn from(slice: &BufferSliceMut<'_, T>) -> Self {
        Self::memory::<T>(&slice.span, false)
    }
}

impl<T: Pod> From<&mut BufferSliceMut<'_, T>> for Arg {
    /// Read and write access.
    fn from(slice: &mut BufferSliceMut<'_, T>) -> Self {
        Self::memory::<T>(&slice.span, true)
    }
}

/// The arguments of a launch, in the order of the kernel's parameters: a tuple of up to 31 values that implement [`Into<Arg>`],
/// or a list of [`Arg`]s.
pub trait Args {
    /// The arguments as a list.
    fn into_args(self) -> ArgList;
}

/// A list of arguments; up to 8 are stored without an allocation.
pub type ArgList = SmallVec<[Arg; 8]>;

impl Args for ArgList {
    fn into_args(self) -> ArgList {
        self
    }
}

impl Args for Vec<Arg> {
    fn into_args(self) -> ArgList {
        self.into()
    }
}

impl Args for &[Arg] {
    fn into_args(self) -> ArgList {
        self.into()
    }
}

impl Args for &Vec<Arg> {
    fn into_args(self) -> ArgList {
        self.as_slice().into()
    }
}

impl<const N: usize> Args for [Arg; N] {
    fn into_args(self) -> ArgList {
        self.into_iter().collect()
    }
}

impl Args for () {
    fn into_args(self) -> ArgList {
        ArgList::new()
    }
}

macro_rules! tuples {
    ($first:ident $($rest:ident)*) => {
        #[allow(non_snake_case)] // one letter is the type and the value
        impl<$first: Into<Arg>, $($rest: Into<Arg>),*> Args for ($first, $($rest,)*) {
            fn into_args(self) -> ArgList {
                let ($first, $($rest,)*) = self;
                smallvec![$first.into(), $($rest.into()),*]
            }
        }
        tuples!($($rest)*);
    };
    () => {};
}
tuples!(A0 A1 A2 A3 A4 A5 A6 A7 A8 A9 A10 A11 A12 A13 A14 A15 A16 A17 A18 A19 A20 A21 A22 A23 A24 A25 A26
    A27 A28 A29 A30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_types_are_told_apart() {
        let scalar = |element| match element {
            Element::Scalars { scalar, lanes, .. } => Some((scalar, lanes)),
            _ => None,
        };
        assert_eq!(scalar(Element::of::<f16>()), Some((Scalar::F16, 1)));
        assert_eq!(scalar(Element::of::<bf16>()), Some((Scalar::BF16, 1)));
        assert_eq!(scalar(Element::of::<u16>()), Some((Scalar::U16, 1)));
        assert_eq!(scalar(Element::of::<[i64; 3]>()), Some((Scalar::I64, 3)));
        assert_eq!(Element::of::<f64>(), Element::Double);
        assert_eq!(Element::of::<[f32; 5]>(), Element::Pod { name: "[f32; 5]", size: 20 });
        assert_eq!(Element::of::<usize>(), Element::Pod { name: "usize", size: 8 });
    }

    #[test]
    fn tuples_keep_their_order() {
        let args = (1u8, 2u16, true, Threadgroup::of::<f32>(5)).into_args();
        let sizes: Vec<u64> = args
            .iter()
            .map(|arg| match &arg.value {
                Value::Bytes { bytes, .. } => bytes.len() as u64,
                Value::Threadgroup(bytes) => *bytes,
                _ => 0,
            })
            .collect();
        assert_eq!(sizes, [1, 2, 1, 20]);
        assert!(().into_args().is_empty());
    }
}
