//! Metal Performance Shaders.
#![cfg(target_os = "macos")]

use metal_crate::*;
use objc2::AnyThread;
use objc2::rc::{Retained, autoreleasepool};
use objc2::runtime::ProtocolObject;
use objc2_metal::*;
use objc2_metal_performance_shaders::*;

fn matrix(buffer: &ProtocolObject<dyn MTLBuffer>, rows: usize, columns: usize) -> Retained<MPSMatrix> {
    unsafe {
        let descriptor = MPSMatrixDescriptor::matrixDescriptorWithRows_columns_rowBytes_dataType(
            rows,
            columns,
            columns * 4,
            MPSDataType::Float32,
        );
        MPSMatrix::initWithBuffer_descriptor(MPSMatrix::alloc(), buffer, &descriptor)
    }
}

fn run(device: &ProtocolObject<dyn MTLDevice>, encode: impl FnOnce(&ProtocolObject<dyn MTLCommandBuffer>)) {
    let commands = device.newCommandQueue().unwrap().commandBuffer().unwrap();
    encode(&commands);
    commands.commit();
    commands.waitUntilCompleted();
    assert_eq!(commands.status(), MTLCommandBufferStatus::Completed);
}

#[test]
fn products_of_matrices() {
    autoreleasepool(|_| {
        let device = device();
        let (m, n, k) = (3, 5, 4);
        let a: Vec<f32> = (0..m * k).map(|i| (i % 7) as f32 - 2.0).collect();
        let b: Vec<f32> = (0..k * n).map(|i| (i % 5) as f32 - 1.5).collect();
        for (left, right) in [(false, false), (true, false), (false, true), (true, true)] {
            let (ba, bb, bc) =
                (buffer_of(&device, &a), buffer_of(&device, &b), buffer_of(&device, &vec![1.0; m * n]));
            let ma = if left { matrix(&ba, k, m) } else { matrix(&ba, m, k) };
            let mb = if right { matrix(&bb, n, k) } else { matrix(&bb, k, n) };
            let mc = matrix(&bc, m, n);
            run(&device, |commands| unsafe {
                let product = MPSMatrixMultiplication::initWithDevice_transposeLeft_transposeRight_resultRows_resultColumns_interiorColumns_alpha_beta(
                    MPSMatrixMultiplication::alloc(), &device, left, right, m, n, k, 2.0, 0.5,
                );
                product.encodeToCommandBuffer_leftMatrix_rightMatrix_resultMatrix(commands, &ma, &mb, &mc);
            });
            let at_a = |i: usize, q: usize| if left { a[q * m + i] } else { a[i * k + q] };
            let at_b = |q: usize, j: usize| if right { b[j * k + q] } else { b[q * n + j] };
            let expected: Vec<f32> = (0..m * n)
                .map(|at| 2.0 * (0..k).map(|q| at_a(at / n, q) * at_b(q, at % n)).sum::<f32>() + 0.5)
                .collect();
            assert_eq!(numbers(&bc), expected, "{left} {right}");
        }
    });
}

#[test]
fn softmax_of_rows() {
    autoreleasepool(|_| {
        let device = device();
        let input = [1.0_f32, 2.0, 3.0, 0.0, 0.0, 100.0];
        let (from, to) = (buffer_of(&device, &input), buffer_of(&device, &[0.0; 6]));
        run(&device, |commands| unsafe {
            let softmax = MPSMatrixSoftMax::initWithDevice(MPSMatrixSoftMax::alloc(), &device);
            softmax.encodeToCommandBuffer_inputMatrix_resultMatrix(
                commands,
                &matrix(&from, 2, 3),
                &matrix(&to, 2, 3),
            );
        });
        for (row, got) in input.chunks(3).zip(numbers(&to).chunks(3)) {
            let greatest = row.iter().copied().fold(f32::MIN, f32::max);
            let sum: f32 = row.iter().map(|value| (value - greatest).exp()).sum();
            for (value, got) in row.iter().zip(got) {
                assert!(((value - greatest).exp() / sum - got).abs() < 1e-6, "{row:?} {got}");
            }
        }
    });
}
