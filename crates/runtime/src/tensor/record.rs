//! Tensor operations of command buffers and streams.

use elinvar_driver::Result;

use crate::tensor::operation::Operation;
use crate::tensor::plan::{Plan, Route};
use crate::tensor::view::{TensorMut, TensorRef};
use crate::{CommandBuffer, Completion, Stream};

impl CommandBuffer {
    /// Adds a tensor operation. `inputs` and `outputs` are in the order that the operation's documentation lists. A rejected operation
    /// leaves the command buffer unchanged.
    ///
    /// # Errors
    /// As [`Plan::new`].
    pub fn tensor(
        &mut self,
        operation: impl Into<Operation>,
        inputs: &[&TensorRef<'_>],
        outputs: &mut [&mut TensorMut<'_>],
    ) -> Result<()> {
        let planned = Plan::new(operation, inputs, outputs, Route::Auto);
        let plan = self.noted(planned)?;
        self.tensor_plan(&plan)
    }

    /// Adds a planned tensor operation. A rejected plan leaves the command buffer unchanged.
    ///
    /// # Errors
    /// `InvalidArgument` for a plan of another device; `OutOfMemory` for its workspace; as [`CommandBuffer::launch`].
    pub fn tensor_plan(&mut self, plan: &Plan) -> Result<()> {
        let recorded = plan.record(self);
        self.noted(recorded)
    }
}

impl Stream {
    /// Executes a tensor operation, behind the stream's pending work. Does not block, except to compile kernels that the device has not
    /// run yet. `inputs` and `outputs` are in the order that the operation's documentation lists.
    ///
    /// ```no_run
    /// # fn main() -> elinvar::Result<()> {
    /// use elinvar::Device;
    /// use elinvar::tensor::Reduce;
    ///
    /// let device = Device::system_default()?;
    /// let stream = device.stream()?;
    /// let x = device.buffer_with_data(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// let mut sums = device.buffer::<f32>(2)?;
    /// stream.tensor(Reduce::sum(&[1]), &[&x.tensor(&[2, 3])?], &mut [&mut sums.tensor_mut(&[2])?])?;
    /// assert_eq!(sums.to_vec()?, [6.0, 15.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`CommandBuffer::tensor`], and the driver's for a submission.
    pub fn tensor(
        &self,
        operation: impl Into<Operation>,
        inputs: &[&TensorRef<'_>],
        outputs: &mut [&mut TensorMut<'_>],
    ) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.tensor(operation, inputs, outputs)?;
        command_buffer.submit()
    }

    /// Executes a planned tensor operation, behind the stream's pending work. Does not block.
    ///
    /// # Errors
    /// As [`CommandBuffer::tensor_plan`], and the driver's for a submission.
    pub fn tensor_plan(&self, plan: &Plan) -> Result<Completion> {
        let mut command_buffer = self.command_buffer();
        command_buffer.tensor_plan(plan)?;
        command_buffer.submit()
    }
}
