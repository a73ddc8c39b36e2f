//! [`MPSMatrixSoftMax`](https://developer.apple.com/documentation/metalperformanceshaders/mpsmatrixsoftmax) and its logarithm: of
//! each row.

use elinvar_objc::{Declaration, Declared, Property, Ref};

use super::matrix::Matrix;
use super::{Kernel, kernel};
use crate::commands::command_buffer::CommandBuffer;
use crate::device::Device;
use crate::require;

/// What both have.
struct Rows {
    kernel: Kernel,
    rows: Property<usize>,
    columns: Property<usize>,
}

struct SoftMax(Rows);

elinvar_objc::object!(SoftMax, c"MPSMatrixSoftMax");

struct LogSoftMax(Rows);

elinvar_objc::object!(LogSoftMax, c"MPSMatrixLogSoftMax");

impl Rows {
    fn new(device: Ref<Device>) -> Self {
        let [rows, columns] = [usize::MAX; 2].map(Property::new);
        Self { kernel: Kernel::new(device), rows, columns }
    }

    fn encode(&self, log: bool, buffer: &Ref<CommandBuffer>, input: &Matrix, result: &Matrix) {
        const METHOD: &str = "-[MPSMatrixSoftMax encodeToCommandBuffer:inputMatrix:resultMatrix:]:";
        let (rows, columns) =
            (self.rows.get().min(input.view.rows), self.columns.get().min(input.view.columns));
        let fits = rows <= result.view.rows && columns <= result.view.columns;
        require!(fits, "{METHOD} the result does not have {rows} rows and {columns} columns");
        let matrices = input.view.matrices.min(result.view.matrices);
        let (input, result) = (input.view.elements(), result.view.elements());
        let work = move || {
            for (matrix, row) in (0..matrices).flat_map(|matrix| (0..rows).map(move |row| (matrix, row))) {
                let values: Vec<f64> = (0..columns).map(|column| input.get(matrix, row, column)).collect();
                for (column, value) in softmax(&values, log).into_iter().enumerate() {
                    result.set(matrix, row, column, value);
                }
            }
            Ok(())
        };
        self.kernel.encode(METHOD, buffer, Box::new(work));
    }
}

fn softmax(values: &[f64], log: bool) -> Vec<f64> {
    let greatest = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let sum: f64 = values.iter().map(|value| (value - greatest).exp()).sum();
    let one = |value: &f64| if log { value - greatest - sum.ln() } else { (value - greatest).exp() / sum };
    values.iter().map(one).collect()
}

fn declare<T, F>(class: Declaration<T>, of: F) -> Declaration<T>
where
    T: Declared,
    F: Fn(&T) -> &Rows + Copy + 'static,
{
    kernel(class.below(c"MPSKernel"), move |this: &T| &of(this).kernel)
        .property("sourceRows", move |this: &T| &of(this).rows)
        .property("sourceColumns", move |this: &T| &of(this).columns)
}

pub fn register() {
    declare(Declaration::<SoftMax>::new(), |s: &SoftMax| &s.0)
        .init("initWithDevice:", |device: Ref<Device>| Some(SoftMax(Rows::new(device))))
        .method(
            "encodeToCommandBuffer:inputMatrix:resultMatrix:",
            |this: &Ref<SoftMax>, buffer: Ref<CommandBuffer>, input: Ref<Matrix>, result: Ref<Matrix>| {
                this.0.encode(false, &buffer, &input, &result);
            },
        )
        .register();
    declare(Declaration::<LogSoftMax>::new(), |s: &LogSoftMax| &s.0)
        .init("initWithDevice:", |device: Ref<Device>| Some(LogSoftMax(Rows::new(device))))
        .method(
            "encodeToCommandBuffer:inputMatrix:resultMatrix:",
            |this: &Ref<LogSoftMax>, buffer: Ref<CommandBuffer>, input: Ref<Matrix>, result: Ref<Matrix>| {
                this.0.encode(true, &buffer, &input, &result);
            },
        )
        .register();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_sum_to_one() {
        let values = [1.0, 2.0, 1000.0, 1000.0];
        let plain = softmax(&values, false);
        assert!((plain.iter().sum::<f64>() - 1.0).abs() < 1e-12 && (plain[3] - 0.5).abs() < 1e-12);
        let logs = softmax(&values, true);
        assert!((logs[2] - 0.5_f64.ln()).abs() < 1e-12 && (logs[0] + 999.0).abs() < 1.0);
    }
}
