//! [`TensorRef`] and [`TensorMut`]: views of buffers as tensors.
//!
//! A view is a byte range of an allocation with an element type, a shape and strides. Its elements are within the range by
//! construction, so an operation needs no further bounds checks. Slicing, permuting, reshaping and broadcasting make other views of
//! the same memory, without copies.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};

use elinvar_driver::{Error, Result};
use smallvec::SmallVec;

use crate::memory::span::Span;
use crate::tensor::data_type::{DataType, Element};
use crate::tensor::overlap;
use crate::{Buffer, BufferSlice, BufferSliceMut, Device};

/// Maximum number of axes.
pub const MAX_RANK: usize = 8;

/// One number for each axis.
pub(crate) type Dims = SmallVec<[usize; MAX_RANK]>;

/// A view of a buffer as a tensor, for reading.
///
/// ```no_run
/// # fn main() -> elinvar::Result<()> {
/// # let device = elinvar::Device::system_default()?;
/// let buffer = device.buffer_with_data(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
/// let matrix = buffer.tensor(&[2, 3])?; // row-major
/// let transposed = matrix.transpose(0, 1)?; // no copy: other strides
/// assert_eq!((transposed.shape(), transposed.strides()), (&[3, 2][..], &[1, 3][..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct TensorRef<'a> {
    /// The memory that the elements are in.
    pub(crate) span: Span,
    pub(crate) data_type: DataType,
    pub(crate) shape: Dims,
    /// In elements.
    pub(crate) strides: Dims,
    /// Index of the first element in the span.
    pub(crate) offset: usize,
    buffer: PhantomData<&'a ()>,
}

/// A view of a buffer as a tensor, for reading and writing. No two of its indices name the same element.
pub struct TensorMut<'a> {
    view: TensorRef<'a>,
    buffer: PhantomData<&'a mut ()>,
}

impl<'a> TensorRef<'a> {
    /// A view with these strides, in elements; 0 repeats an axis. `offset` is the index of the first element.
    ///
    /// # Errors
    /// `InvalidArgument` if an element would be outside the slice, for more than [`MAX_RANK`] axes, or if the slice is not aligned to the
    /// element type.
    pub fn strided<T: Element>(
        slice: impl Into<BufferSlice<'a, T>>,
        shape: &[usize],
        strides: &[usize],
        offset: usize,
    ) -> Result<Self> {
        Self::new(slice.into().span, T::DATA_TYPE, shape, strides, offset)
    }

    /// A row-major view of bytes whose element type is known at run time only.
    ///
    /// # Errors
    /// As [`TensorRef::strided`].
    pub fn of_bytes(
        slice: impl Into<BufferSlice<'a, u8>>,
        data_type: DataType,
        shape: &[usize],
    ) -> Result<Self> {
        Self::new(slice.into().span, data_type, shape, &row_major(shape)?, 0)
    }

    fn new(
        span: Span,
        data_type: DataType,
        shape: &[usize],
        strides: &[usize],
        offset: usize,
    ) -> Result<Self> {
        let fail = |text: String| Err(Error::invalid(format!("tensor of shape {shape:?}: {text}")));
        if shape.len() != strides.len() {
            return fail(format!("{} strides for {} axes", strides.len(), shape.len()));
        }
        if shape.len() > MAX_RANK {
            return fail(format!("{} axes, at most {MAX_RANK} allowed", shape.len()));
        }
        if !has_a_count(shape) {
            return fail("its number of elements is beyond 63 bits".into());
        }
        if !span.offset.is_multiple_of(data_type.size()) {
            let (begin, size) = (span.offset, data_type.size());
            return fail(format!("the slice begins at byte {begin}, which is not a multiple of {size}"));
        }
        let elements = span.len / data_type.size();
        let last = shape
            .iter()
            .zip(strides)
            .try_fold(offset as u64, |last, (size, stride)| {
                (size.saturating_sub(1) as u64).checked_mul(*stride as u64)?.checked_add(last)
            })
            .filter(|last| *last < u64::MAX);
        let is_empty = shape.contains(&0);
        if is_empty && offset as u64 <= elements || last.is_some_and(|last| last < elements) {
            let (shape, strides) = (shape.into(), strides.into());
            return Ok(Self { span, data_type, shape, strides, offset, buffer: PhantomData });
        }
        let last = last.map_or_else(|| "beyond 64 bits".into(), |last| format!("at index {last}"));
        fail(format!(
            "with strides {strides:?} and offset {offset} its last element is {last}, the buffer has {elements} of {data_type}"
        ))
    }

    /// Number of elements along each axis. A scalar has no axes.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Distance of neighbors along each axis, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Number of axes.
    pub fn rank(&self) -> usize {
        self.shape.len()
    }

    /// Number of elements: the product of the shape.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Element type.
    pub fn data_type(&self) -> DataType {
        self.data_type
    }

    /// The device that it belongs to.
    pub fn device(&self) -> &Device {
        &self.span.storage.device
    }

    /// Whether its elements are consecutive in row-major order.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        self.is_empty()
            || self.shape.iter().zip(&self.strides).rev().all(|(size, stride)| {
                let fits = *size == 1 || *stride == expected;
                expected *= size;
                fits
            })
    }

    /// The elements of `range` along an axis.
    ///
    /// # Errors
    /// `InvalidArgument` if the axis does not exist, or the range is not within it.
    pub fn slice(&self, axis: usize, range: Range<usize>) -> Result<Self> {
        self.slice_step(axis, range, 1)
    }

    /// Each `step`-th element of `range` along an axis, beginning with the first.
    ///
    /// # Errors
    /// As [`TensorRef::slice`]; `InvalidArgument` for a step of 0.
    pub fn slice_step(&self, axis: usize, range: Range<usize>, step: usize) -> Result<Self> {
        let size = self.size_of(axis, "slice")?;
        if range.start > range.end || range.end > size || step == 0 {
            let (start, end, shape) = (range.start, range.end, &self.shape);
            return Err(Error::invalid(format!(
                "slice {start}..{end} with step {step} of axis {axis} of shape {shape:?}, which has {size} elements"
            )));
        }
        let mut view = self.clone();
        view.shape[axis] = range.len().div_ceil(step);
        // Of an empty slice at the end, the first element would be outside.
        view.offset += if range.is_empty() { 0 } else { range.start * self.strides[axis] };
        view.strides[axis] = self.strides[axis].saturating_mul(step);
        Ok(view)
    }

    /// The tensor without an axis, at `index` of it.
    ///
    /// # Errors
    /// As [`TensorRef::slice`].
    pub fn index(&self, axis: usize, index: usize) -> Result<Self> {
        let mut view = self.slice(axis, index..index.saturating_add(1))?;
        view.shape.remove(axis);
        view.strides.remove(axis);
        Ok(view)
    }

    /// The axes in another order: axis `i` of the result is axis `order[i]`.
    ///
    /// # Errors
    /// `InvalidArgument` unless `order` names each axis once.
    pub fn permute(&self, order: &[usize]) -> Result<Self> {
        let mut sorted: Dims = order.into();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..self.rank()) {
            let shape = &self.shape;
            return Err(Error::invalid(format!(
                "permute: {order:?} does not name each axis of {shape:?} once"
            )));
        }
        let pick = |of: &Dims| order.iter().map(|axis| of[*axis]).collect();
        Ok(Self { shape: pick(&self.shape), strides: pick(&self.strides), ..self.clone() })
    }

    /// Two axes exchanged.
    ///
    /// # Errors
    /// `InvalidArgument` if an axis does not exist.
    pub fn transpose(&self, one: usize, other: usize) -> Result<Self> {
        self.size_of(one, "transpose")?;
        self.size_of(other, "transpose")?;
        let mut view = self.clone();
        view.shape.swap(one, other);
        view.strides.swap(one, other);
        Ok(view)
    }

    /// The same elements, in row-major order, with another shape.
    ///
    /// # Errors
    /// `InvalidArgument` if the number of elements differs, or if no strides describe the result, so that a copy is needed.
    pub fn reshape(&self, shape: &[usize]) -> Result<Self> {
        let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul(*size));
        let (from, len) = (&self.shape, self.len());
        if shape.len() > MAX_RANK {
            return Err(Error::invalid(format!("reshape to {shape:?}: at most {MAX_RANK} axes allowed")));
        }
        if count != Some(len) {
            return Err(Error::invalid(format!("reshape: {from:?} has {len} elements, {shape:?} has not")));
        }
        let strides = reshaped(&self.shape, &self.strides, shape).ok_or_else(|| {
            let strides = &self.strides;
            Error::invalid(format!(
                "reshape: {from:?} with strides {strides:?} has no strides as {shape:?}; copy it first"
            ))
        })?;
        Ok(Self { shape: shape.into(), strides, ..self.clone() })
    }

    /// With axes of size 1 repeated, and axes added at the front, by NumPy's rules.
    ///
    /// # Errors
    /// `InvalidArgument` that names both shapes and the axis that does not fit.
    pub fn broadcast(&self, shape: &[usize]) -> Result<Self> {
        let fail = |text: String| {
            Err(Error::invalid(format!("broadcast of shape {:?} to {shape:?}: {text}", &self.shape[..])))
        };
        if shape.len() > MAX_RANK {
            return fail(format!("{} axes, at most {MAX_RANK} allowed", shape.len()));
        }
        if !has_a_count(shape) {
            return fail("its number of elements is beyond 63 bits".into());
        }
        let Some(added) = shape.len().checked_sub(self.rank()) else {
            return fail(format!("it has {} axes, more than {}", self.rank(), shape.len()));
        };
        let mut strides = Dims::from_elem(0, shape.len());
        for (axis, (size, stride)) in self.shape.iter().zip(&self.strides).enumerate() {
            let wanted = shape[added + axis];
            if *size != wanted && *size != 1 {
                return fail(format!("axis {axis} has {size} elements, not {wanted} or 1"));
            }
            strides[added + axis] = if *size == wanted { *stride } else { 0 };
        }
        Ok(Self { shape: shape.into(), strides, ..self.clone() })
    }

    /// With an axis of size 1 inserted before axis `axis`.
    ///
    /// # Errors
    /// `InvalidArgument` if `axis` is greater than the number of axes, or for more than [`MAX_RANK`] axes.
    pub fn expand(&self, axis: usize) -> Result<Self> {
        if axis > self.rank() || self.rank() == MAX_RANK {
            let shape = &self.shape;
            return Err(Error::invalid(format!(
                "expand: no axis can be inserted at {axis} of shape {shape:?}"
            )));
        }
        let mut view = self.clone();
        view.shape.insert(axis, 1);
        view.strides.insert(axis, 0);
        Ok(view)
    }

    fn size_of(&self, axis: usize, what: &str) -> Result<usize> {
        let shape = &self.shape;
        let missing = || Error::invalid(format!("{what}: shape {shape:?} has no axis {axis}"));
        self.shape.get(axis).copied().ok_or_else(missing)
    }

    /// Number of elements from the first to the last.
    pub(crate) fn extent(&self) -> usize {
        if self.is_empty() {
            return 0;
        }
        1 + self.shape.iter().zip(&self.strides).map(|(size, stride)| (size - 1) * stride).sum::<usize>()
    }

    /// The bytes from the first element to the last.
    pub(crate) fn used_span(&self) -> Span {
        let size = self.data_type.size();
        let (offset, len) = (self.offset as u64 * size, self.extent() as u64 * size);
        Span { offset: self.span.offset + offset, len, storage: self.span.storage.clone() }
    }

    /// The same view of other memory, in which it begins at the byte `offset`. The memory has as many bytes behind it as are used here.
    pub(crate) fn in_place_of(&self, memory: Buffer<u8>, offset: u64) -> TensorRef<'static> {
        let Self { data_type, shape, strides, .. } = self.clone();
        let Span { offset: begin, len, storage } = memory.span;
        let span = Span { offset: begin + offset, len: len - offset, storage };
        TensorRef { span, data_type, shape, strides, offset: 0, buffer: PhantomData }
    }
}

impl<'a> TensorMut<'a> {
    /// A view with these strides, in elements. `offset` is the index of the first element.
    ///
    /// # Errors
    /// As [`TensorRef::strided`]; `InvalidArgument` if two indices may name the same element.
    pub fn strided<T: Element>(
        slice: impl Into<BufferSliceMut<'a, T>>,
        shape: &[usize],
        strides: &[usize],
        offset: usize,
    ) -> Result<Self> {
        Self::new(TensorRef::new(slice.into().span, T::DATA_TYPE, shape, strides, offset)?)
    }

    /// A row-major view of bytes whose element type is known at run time only.
    ///
    /// # Errors
    /// As [`TensorRef::of_bytes`].
    pub fn of_bytes(
        slice: impl Into<BufferSliceMut<'a, u8>>,
        data_type: DataType,
        shape: &[usize],
    ) -> Result<Self> {
        Self::new(TensorRef::new(slice.into().span, data_type, shape, &row_major(shape)?, 0)?)
    }

    fn new(view: TensorRef<'a>) -> Result<Self> {
        if let Some(axis) = overlap::repeated_axis(&view) {
            let TensorRef { shape, strides, .. } = &view;
            return Err(Error::invalid(format!(
                "mutable tensor of shape {shape:?} with strides {strides:?}: axis {axis} may name elements of other axes again"
            )));
        }
        Ok(Self { view, buffer: PhantomData })
    }

    fn with(self, view: Result<TensorRef<'a>>) -> Result<Self> {
        Ok(Self { view: view?, buffer: PhantomData })
    }

    /// As [`TensorRef::slice`].
    ///
    /// # Errors
    /// As [`TensorRef::slice`].
    pub fn slice(self, axis: usize, range: Range<usize>) -> Result<Self> {
        let view = self.view.slice(axis, range);
        self.with(view)
    }

    /// As [`TensorRef::slice_step`].
    ///
    /// # Errors
    /// As [`TensorRef::slice_step`].
    pub fn slice_step(self, axis: usize, range: Range<usize>, step: usize) -> Result<Self> {
        let view = self.view.slice_step(axis, range, step);
        self.with(view)
    }

    /// As [`TensorRef::index`].
    ///
    /// # Errors
    /// As [`TensorRef::index`].
    pub fn index(self, axis: usize, index: usize) -> Result<Self> {
        let view = self.view.index(axis, index);
        self.with(view)
    }

    /// As [`TensorRef::permute`].
    ///
    /// # Errors
    /// As [`TensorRef::permute`].
    pub fn permute(self, order: &[usize]) -> Result<Self> {
        let view = self.view.permute(order);
        self.with(view)
    }

    /// As [`TensorRef::transpose`].
    ///
    /// # Errors
    /// As [`TensorRef::transpose`].
    pub fn transpose(self, one: usize, other: usize) -> Result<Self> {
        let view = self.view.transpose(one, other);
        self.with(view)
    }

    /// As [`TensorRef::reshape`].
    ///
    /// # Errors
    /// As [`TensorRef::reshape`].
    pub fn reshape(self, shape: &[usize]) -> Result<Self> {
        let view = self.view.reshape(shape);
        self.with(view)
    }

    /// As [`TensorRef::expand`].
    ///
    /// # Errors
    /// As [`TensorRef::expand`].
    pub fn expand(self, axis: usize) -> Result<Self> {
        let view = self.view.expand(axis);
        self.with(view)
    }
}

impl<'a> Deref for TensorMut<'a> {
    type Target = TensorRef<'a>;

    /// The view for reading.
    fn deref(&self) -> &TensorRef<'a> {
        &self.view
    }
}

impl<T: Element> Buffer<T> {
    /// A row-major view of the first elements as a tensor.
    ///
    /// # Errors
    /// `InvalidArgument` if the shape has more elements than the buffer, or more than [`MAX_RANK`] axes.
    pub fn tensor(&self, shape: &[usize]) -> Result<TensorRef<'_>> {
        TensorRef::strided(self, shape, &row_major(shape)?, 0)
    }

    /// A row-major view of the first elements as a tensor, for reading and writing.
    ///
    /// # Errors
    /// As [`Buffer::tensor`].
    pub fn tensor_mut(&mut self, shape: &[usize]) -> Result<TensorMut<'_>> {
        TensorMut::strided(self, shape, &row_major(shape)?, 0)
    }
}

/// Whether the number of elements fits; axes of size 0 count as 1, so that slices of others have no more.
fn has_a_count(shape: &[usize]) -> bool {
    let count = shape.iter().try_fold(1usize, |count, size| count.checked_mul((*size).max(1)));
    count.is_some_and(|count| isize::try_from(count).is_ok())
}

/// Strides of a contiguous tensor.
fn row_major(shape: &[usize]) -> Result<Dims> {
    let mut strides = Dims::from_elem(0, shape.len());
    let mut stride = 1usize;
    for (axis, size) in shape.iter().enumerate().rev() {
        strides[axis] = stride;
        stride = stride.checked_mul((*size).max(1)).ok_or_else(|| {
            Error::invalid(format!("tensor of shape {shape:?}: its number of elements is beyond 63 bits"))
        })?;
    }
    Ok(strides)
}

/// Strides of the same elements with shape `to`, which has as many elements; `None` if there are none.
fn reshaped(from: &[usize], strides: &[usize], to: &[usize]) -> Option<Dims> {
    if from.contains(&0) {
        return row_major(to).ok();
    }
    let mut left = from.iter().zip(strides).filter(|(size, _)| **size != 1).map(|(s, t)| (*s, *t));
    let mut new = Dims::from_elem(0, to.len());
    let mut axis = 0;
    while axis < to.len() {
        if to[axis] == 1 {
            axis += 1;
            continue;
        }
        // The shortest groups of axes with the same number of elements.
        let (mut size, mut stride) = left.next()?;
        let (mut wanted, mut end) = (to[axis], axis + 1);
        while size != wanted {
            if size < wanted {
                let (next, inner) = left.next()?;
                if stride != inner.checked_mul(next)? {
                    return None;
                }
                (size, stride) = (size * next, inner);
            } else {
                wanted *= *to.get(end)?;
                end += 1;
            }
        }
        for at in (axis..end).rev() {
            new[at] = stride;
            stride *= to[at];
        }
        axis = end;
    }
    Some(new)
}

/// `[2, 3]` of `f32`.
impl fmt::Display for TensorRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} of {}", &self.shape[..], self.data_type)
    }
}

impl fmt::Debug for TensorRef<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorRef({self}, strides {:?}, offset {})", &self.strides[..], self.offset)
    }
}

impl fmt::Debug for TensorMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TensorMut({}, strides {:?}, offset {})", self.view, &self.strides[..], self.offset)
    }
}
