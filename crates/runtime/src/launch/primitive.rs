//! Primitives of the vendor's library: validation and recording.
//!
//! A primitive accesses exactly the memory that its shape defines, so recording one is safe.

use elinvar_driver::primitive::{Operand, OperandUse};
use elinvar_driver::{Command, Error, MemorySlice, Primitive, Result};

use crate::launch::args::{Arg, ArgList, Element, Value};
use crate::memory::span::Span;
use crate::memory::usage::{Access, Usage, Usages, Who};
use crate::observe::trace::TraceStep;
use crate::{Args, CommandBuffer, Completion, Stream};

impl Stream {
    /// Executes a primitive of the vendor's library, behind the stream's pending work. Does not block.
    ///
    /// ```no_run
    /// # fn main() -> elinvar::Result<()> {
    /// use elinvar::driver::primitive::{DataType, MatMul};
    /// use elinvar::{Device, Primitive, PrimitiveKind};
    ///
    /// let device = Device::system_default()?;
    /// let stream = device.stream()?;
    /// let (a, b) = (device.buffer_with_data(&[1.0f32, 2.0, 3.0, 4.0])?, device.buffer_with_data(&[5.0f32, 6.0])?);
    /// let mut out = device.buffer::<f32>(2)?;
    /// if device.caps().features.primitives.has(PrimitiveKind::MatMul, DataType::F32) {
    ///     let product = Primitive::MatMul(MatMul::packed(DataType::F32, 2, 2, 1));
    ///     stream.primitive(&product, (&a, &b, &mut out))?;
    ///     assert_eq!(out.to_vec()?, [17.0, 39.0]);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`CommandBuffer::primitive`], and the driver's for a submission.
    pub fn primitive(&self, primitive: &Primitive, operands: impl Args) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.primitive(primitive, operands)?;
        command_buffer.submit()
    }
}

impl CommandBuffer {
    /// Adds a primitive. `operands` are buffers or slices, one for each of [`Primitive::operands`], in that order; those that may
    /// be written as `&mut`. A rejected primitive leaves the command buffer unchanged.
    ///
    /// # Errors
    /// `InvalidArgument` that names the operand if the shape is invalid, or a buffer is too small, has another type or device, or
    /// overlaps the result; `Unsupported` if it is not in [`elinvar_driver::Features::primitives`].
    pub fn primitive(&mut self, primitive: &Primitive, operands: impl Args) -> Result<()> {
        let recorded = self.record_primitive(primitive, operands.into_args());
        self.noted(recorded)
    }

    fn record_primitive(&mut self, primitive: &Primitive, args: ArgList) -> Result<()> {
        let wanted = primitive.operands_for(args.len())?;
        let spans = wanted.iter().zip(args).map(|(operand, arg)| self.operand(primitive, operand, arg));
        let spans = spans.collect::<Result<Vec<Span>>>()?;
        // Truncated to the used size, so that an output counts as written in full.
        let exact = |(span, operand): (&Span, &Operand)| MemorySlice {
            len: operand.bytes.min(span.len),
            ..span.memory_slice()
        };
        let operands: Vec<MemorySlice> = spans.iter().zip(&wanted).map(exact).collect();
        primitive.check(&operands)?;
        let caps = self.device().caps();
        caps.features.primitives.expect(primitive, &operands, &caps.name)?;
        let usages = spans.iter().zip(&wanted).flat_map(|(span, operand)| usages(primitive, operand, span));
        let usages: Usages = usages.collect();
        let command = Command::Primitive { primitive: *primitive, operands };
        self.push(command, usages, TraceStep::Primitive(primitive.kind()));
        Ok(())
    }

    /// The memory of an operand, with its type and access validated.
    fn operand(&self, primitive: &Primitive, operand: &Operand, arg: Arg) -> Result<Span> {
        let place = || format!("{}: `{}`", primitive.kind().name(), operand.name);
        let Value::Memory { span, element, writable } = arg.value else {
            return Err(Error::invalid(format!("{} is not a buffer", place())));
        };
        self.device().expect_same(&span.storage.device, || format!("{} is", place()))?;
        let is_type = match element {
            Element::Scalars { scalar, .. } => scalar == operand.data_type.scalar(),
            other => other == Element::Raw,
        };
        if !is_type {
            return Err(Error::invalid(format!("{} requires a buffer of {}", place(), operand.data_type)));
        }
        if operand.used != OperandUse::Read && !writable {
            return Err(Error::invalid(format!("{} is written; pass the buffer as `&mut`", place())));
        }
        Ok(span)
    }
}

/// Use of an operand's memory, for the usage records.
fn usages(primitive: &Primitive, operand: &Operand, span: &Span) -> Vec<Usage> {
    let who = Who::Operand(primitive.kind(), operand.name);
    let whole = span.covers_storage() && operand.bytes == span.len;
    let usage = |access, covers| Usage { storage: span.storage.clone(), who: who.clone(), access, covers };
    match operand.used {
        OperandUse::Read => vec![usage(Access::Read, whole)],
        OperandUse::Replaced | OperandUse::Written => vec![usage(Access::Write, whole)],
        OperandUse::Updated => vec![usage(Access::Read, whole), usage(Access::Write, whole)],
    }
}

#[cfg(test)]
mod tests {
    use elinvar_driver::Driver as _;
    use elinvar_driver::primitive::{DataType, Matrix, Softmax};

    use super::*;

    #[test]
    fn a_result_covers_an_allocation_when_it_is_all_of_it() {
        let device =
            crate::Device::new(elinvar_driver_cpu::CpuDriver::with_threads(1).devices().unwrap().remove(0));
        let buffer = device.buffer::<f32>(16).unwrap();
        let matrix = Matrix::packed(DataType::F32, 4, 4);
        let softmax = Softmax { data_type: DataType::F32, source: matrix, result: matrix, logarithm: false };
        let primitive = Primitive::Softmax(softmax);
        let result = *primitive.operands().unwrap().last().unwrap();
        assert_eq!(result.bytes, 64);
        let covers = |operand: &Operand, span: &Span| {
            let usages = usages(&primitive, operand, span);
            assert_eq!(usages.len(), 1);
            usages[0].covers
        };
        assert!(covers(&result, &buffer.span));
        assert!(!covers(&Operand { bytes: 60, ..result }, &buffer.span), "four bytes of the buffer are left");
        let part = Span { len: 60, ..buffer.span.clone() };
        assert!(
            !covers(&Operand { bytes: 60, ..result }, &part),
            "the slice is used in full, the buffer is not"
        );
    }
}
