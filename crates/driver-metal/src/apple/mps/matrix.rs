//! Products and softmax: `MPSMatrixMultiplication`, `MPSMatrixVectorMultiplication`, `MPSMatrixSoftMax`.
#![allow(unsafe_code)] // calls the framework

use elinvar_driver::Result;
use elinvar_driver::primitive::{MatMul, MatVec, Softmax};
use objc2::AnyThread as _;
use objc2::rc::Retained;
use objc2::runtime::ProtocolObject;
use objc2_metal::MTLDevice;
use objc2_metal_performance_shaders::{
    MPSMatrixLogSoftMax, MPSMatrixMultiplication, MPSMatrixSoftMax, MPSMatrixVectorMultiplication,
};

use super::Call;

type Device = ProtocolObject<dyn MTLDevice>;

pub(super) fn mat_mul(device: &Device, p: &MatMul) -> Retained<MPSMatrixMultiplication> {
    let (rows, columns, interior) = (p.result.rows, p.result.columns, p.interior());
    // SAFETY: plain numbers, none of which is 0.
    unsafe {
        MPSMatrixMultiplication::initWithDevice_transposeLeft_transposeRight_resultRows_resultColumns_interiorColumns_alpha_beta(
            MPSMatrixMultiplication::alloc(),
            device,
            p.transpose_left,
            p.transpose_right,
            rows as usize,
            columns as usize,
            interior as usize,
            f64::from(p.alpha),
            f64::from(p.beta),
        )
    }
}

pub(super) fn encode_mat_mul(call: &Call<'_>, p: &MatMul, kernel: &MPSMatrixMultiplication) -> Result<()> {
    let view = |at, matrix| call.matrices(at, matrix, p.matrices, p.data_type);
    let (left, right, result) = (view(0, p.left)?, view(1, p.right)?, view(2, p.result)?);
    // SAFETY: the matrices have the kernel's sizes, and the result does not overlap the others.
    unsafe {
        kernel.encodeToCommandBuffer_leftMatrix_rightMatrix_resultMatrix(
            &call.buffer,
            &left,
            &right,
            &result,
        );
    }
    Ok(())
}

pub(super) fn mat_vec(device: &Device, p: &MatVec) -> Retained<MPSMatrixVectorMultiplication> {
    let (rows, columns) = p.size();
    // SAFETY: plain numbers, none of which is 0.
    unsafe {
        MPSMatrixVectorMultiplication::initWithDevice_transpose_rows_columns_alpha_beta(
            MPSMatrixVectorMultiplication::alloc(),
            device,
            p.transpose,
            rows as usize,
            columns as usize,
            f64::from(p.alpha),
            f64::from(p.beta),
        )
    }
}

pub(super) fn encode_mat_vec(
    call: &Call<'_>,
    p: &MatVec,
    kernel: &MPSMatrixVectorMultiplication,
) -> Result<()> {
    let (rows, columns) = p.size();
    let matrix = call.matrices(0, p.matrix, 1, p.data_type)?;
    let (vector, result) = (call.vector(1, columns, p.data_type)?, call.vector(2, rows, p.data_type)?);
    // SAFETY: matrix and vectors have the kernel's sizes, and the result does not overlap the others.
    unsafe {
        kernel.encodeToCommandBuffer_inputMatrix_inputVector_resultVector(
            &call.buffer,
            &matrix,
            &vector,
            &result,
        );
    }
    Ok(())
}

pub(super) fn softmax(device: &Device, p: &Softmax) -> Retained<MPSMatrixSoftMax> {
    // SAFETY: makes a kernel.
    unsafe {
        if p.logarithm {
            let kernel = MPSMatrixLogSoftMax::initWithDevice(MPSMatrixLogSoftMax::alloc(), device);
            return Retained::into_super(kernel);
        }
        MPSMatrixSoftMax::initWithDevice(MPSMatrixSoftMax::alloc(), device)
    }
}

pub(super) fn encode_softmax(call: &Call<'_>, p: &Softmax, kernel: &MPSMatrixSoftMax) -> Result<()> {
    let view = |at, matrix| call.matrices(at, matrix, 1, p.data_type);
    let (source, result) = (view(0, p.source)?, view(1, p.result)?);
    // SAFETY: both have the same size, and do not overlap.
    unsafe { kernel.encodeToCommandBuffer_inputMatrix_resultMatrix(&call.buffer, &source, &result) };
    Ok(())
}
