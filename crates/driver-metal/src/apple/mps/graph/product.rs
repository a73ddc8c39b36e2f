//! Products of matrices, with a bias and an activation.

use elinvar_driver::primitive::{Activation, DataType, MatMul, Matrix};

use super::build::{Builder, Value};

pub(super) fn build(builder: &mut Builder, p: &MatMul) {
    let data_type = p.data_type;
    let is_plain = p.alpha == 1.0 && p.beta == 0.0 && !p.bias && p.activation != Activation::Gelu;
    // What follows a product of 16 bits would see it rounded.
    let computed = if is_plain { data_type } else { DataType::F32 };
    let (batch, last) = (p.matrices as usize, if p.bias { 3 } else { 2 });
    let mut factor = |index, matrix: &Matrix, transposed: bool| {
        let count = if matrix.matrix_bytes == 0 && batch > 1 { 1 } else { batch };
        let value =
            builder.operand(index, &[count, matrix.rows as usize, matrix.columns as usize], data_type);
        let value = builder.cast(value, data_type, computed);
        if transposed { builder.exchange(&value, 1, 2) } else { value }
    };
    let (left, right) = (factor(0, &p.left, p.transpose_left), factor(1, &p.right, p.transpose_right));
    let shape = [batch, p.result.rows as usize, p.result.columns as usize];
    let mut value = builder.product(&left, &right);
    value = builder.scale(value, p.alpha);
    if p.beta != 0.0 {
        let before = builder.wide(last, &shape, data_type);
        value = builder.add(&value, &builder.scale(before, p.beta));
    }
    if p.bias {
        let bias = builder.wide(2, &[shape[2]], data_type);
        value = builder.add(&value, &bias);
    }
    value = match p.activation {
        Activation::Relu => relu(builder, &value),
        Activation::Gelu => gelu(builder, &value),
        _ => value,
    };
    let value = builder.cast(value, computed, data_type);
    // Both factors may be shared.
    let value = if is_shared(p) { builder.broadcast(&value, &shape) } else { value };
    builder.result(last, value, &shape, data_type);
}

fn is_shared(p: &MatMul) -> bool {
    p.matrices > 1 && p.left.matrix_bytes == 0 && p.right.matrix_bytes == 0
}

#[allow(unsafe_code)] // calls the framework
fn relu(builder: &Builder, value: &Value) -> Value {
    // SAFETY: the value is of this graph.
    unsafe { builder.graph.reLUWithTensor_name(value, None) }
}

/// `x / 2 · (1 + tanh(√(2/π) · (x + 0.044715 · x³)))`.
#[allow(unsafe_code)] // calls the framework
fn gelu(builder: &Builder, x: &Value) -> Value {
    let cube = builder.multiply(&builder.multiply(x, x), x);
    let inner = builder.add(x, &builder.multiply(&cube, &builder.number(0.044_715)));
    let inner = builder.multiply(&inner, &builder.number((2.0 / std::f64::consts::PI).sqrt()));
    // SAFETY: the value is of this graph.
    let tanh = unsafe { builder.graph.tanhWithTensor_name(&inner, None) };
    let half = builder.multiply(x, &builder.number(0.5));
    builder.multiply(&half, &builder.add(&tanh, &builder.number(1.0)))
}
