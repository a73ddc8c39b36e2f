//! Tensor operations whose worker is killed meanwhile: computed again behind a reset, or on the CPU; or given up with the reason.

use elinvar::tensor::{Activation, MatMul, Normalize, Plan, Route, Softmax, Statistics};
use elinvar::{Buffer, Device, DeviceKind, RecoveryPolicy, Stream};

use crate::linux::{Bench, decisions};

const ROWS: usize = 37;
const TERMS: usize = 301;
const COLUMNS: usize = 67;

fn numbers(count: usize, factor: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * factor) % 65) as f32 / 16.0 - 2.0).collect()
}

/// A product, the log-softmax of its rows, and the normalization of the product's few long rows, which has several steps and a workspace.
struct Work {
    plans: [Plan; 3],
    hidden: Buffer<f32>,
    logs: Buffer<f32>,
    normal: Buffer<f32>,
}

impl Work {
    fn new(device: &Device) -> Self {
        let (a, b) = (numbers(ROWS * TERMS, 7), numbers(TERMS * COLUMNS, 11));
        let (a, b) = (device.buffer_with_data(&a).unwrap(), device.buffer_with_data(&b).unwrap());
        let bias = device.buffer_with_data(&numbers(COLUMNS, 5)).unwrap();
        let [mut hidden, mut logs, mut normal] =
            [(); 3].map(|()| device.buffer::<f32>(ROWS * COLUMNS).unwrap());
        let (mut mean, mut deviation) = (device.buffer::<f32>(1).unwrap(), device.buffer::<f32>(1).unwrap());
        let shape = [ROWS, COLUMNS];
        let product = MatMul { bias: true, activation: Activation::Relu, ..MatMul::default() };
        let inputs = [
            a.tensor(&[ROWS, TERMS]).unwrap(),
            b.tensor(&[TERMS, COLUMNS]).unwrap(),
            bias.tensor(&[COLUMNS]).unwrap(),
        ];
        let inputs: Vec<_> = inputs.iter().collect();
        let product =
            Plan::new(product, &inputs, &mut [&mut hidden.tensor_mut(&shape).unwrap()], Route::Kernel);
        let x = hidden.tensor(&shape).unwrap();
        let softmax = Plan::new(
            Softmax { axis: 1, logarithm: true },
            &[&x],
            &mut [&mut logs.tensor_mut(&shape).unwrap()],
            Route::Kernel,
        );
        let of = Normalize { scale: false, bias: false, ..Normalize::layer(&[0, 1]) };
        let outputs = &mut [
            &mut normal.tensor_mut(&shape).unwrap(),
            &mut mean.tensor_mut(&[1, 1]).unwrap(),
            &mut deviation.tensor_mut(&[1, 1]).unwrap(),
        ];
        let normalize = Plan::new(of.statistics(Statistics::Saved), &[&x], outputs, Route::Kernel);
        let plans = [product.unwrap(), softmax.unwrap(), normalize.unwrap()];
        Self { plans, hidden, logs, normal }
    }

    /// Submits each operation to a worker that is killed before it has ended. Returns how many were computed again. An operation of several
    /// steps is given up, with the reason: it has modified its workspace, from which it reads.
    fn lose(&self, bench: &Bench, stream: &Stream) -> usize {
        let computed = |plan: &&Plan| {
            // By a worker, after the last one was killed.
            bench.device.stream().unwrap().tensor_plan(plan).unwrap().wait().unwrap();
            bench.signal("-STOP");
            let lost = stream.tensor_plan(plan).unwrap();
            bench.signal("-KILL");
            let Err(error) = lost.wait() else { return true };
            let reasons = decisions(&bench.device);
            assert!(plan.steps() > 1, "{plan:?}: {error}: {reasons:?}");
            assert!(reasons.last().is_some_and(|reason| reason.contains("modified in place")), "{reasons:?}");
            stream.acknowledge();
            stream.tensor_plan(plan).unwrap().wait().unwrap();
            false
        };
        self.plans.iter().filter(computed).count()
    }

    /// Compares every element with the same operations in `f64`, then clears the results.
    fn expect(&mut self, stream: &Stream) {
        let (a, b, bias) = (numbers(ROWS * TERMS, 7), numbers(TERMS * COLUMNS, 11), numbers(COLUMNS, 5));
        let exact: Vec<f64> = (0..ROWS * COLUMNS)
            .map(|at| {
                let (row, column) = (at / COLUMNS, at % COLUMNS);
                let term = |k: usize| f64::from(a[row * TERMS + k]) * f64::from(b[k * COLUMNS + column]);
                ((0..TERMS).map(term).sum::<f64>() + f64::from(bias[column])).max(0.0)
            })
            .collect();
        // The terms are multiples of 2⁻⁸ up to 4, so their sums are exact in `f32`.
        for (at, (got, exact)) in self.hidden.to_vec().unwrap().into_iter().zip(&exact).enumerate() {
            assert_eq!(f64::from(got), *exact, "product: element {at}");
        }
        let logs = self.logs.to_vec().unwrap();
        for (row, (got, x)) in logs.chunks(COLUMNS).zip(exact.chunks(COLUMNS)).enumerate() {
            let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let sum: f64 = x.iter().map(|x| (x - most).exp()).sum();
            for (column, (got, x)) in got.iter().zip(x).enumerate() {
                let log = x - most - sum.ln();
                let error = 2e-5 * (1.0 + log.abs());
                assert!(
                    (f64::from(*got) - log).abs() <= error,
                    "softmax: row {row}, column {column}: {got}, {log}"
                );
            }
        }
        let count = exact.len() as f64;
        let mean = exact.iter().sum::<f64>() / count;
        let variance = exact.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count;
        for (at, (got, x)) in self.normal.to_vec().unwrap().into_iter().zip(&exact).enumerate() {
            let normal = (x - mean) / (variance + 1e-5).sqrt();
            assert!((f64::from(got) - normal).abs() <= 1e-4, "normalization: element {at}: {got}, {normal}");
        }
        for buffer in [&mut self.hidden, &mut self.logs, &mut self.normal] {
            stream.fill(buffer, f32::NAN).unwrap().wait().unwrap();
        }
    }
}

pub fn tensor_operations_that_are_lost_are_computed_again(kind: DeviceKind) {
    let bench = Bench::new(kind);
    bench.device.trace().start(1000);
    let mut work = Work::new(&bench.device);
    let plain = bench.device.stream().unwrap();
    for plan in &work.plans {
        // Makes the worker load the kernels, which a stopped worker could not do.
        plain.tensor_plan(plan).unwrap().wait().unwrap();
    }
    work.expect(&plain);
    for policy in [
        RecoveryPolicy { resets: 1, ..RecoveryPolicy::of(&bench.device) },
        RecoveryPolicy {
            resets: 0,
            rerun: Some(Device::cpu().unwrap()),
            ..RecoveryPolicy::of(&bench.device)
        },
    ] {
        let stream = bench.device.stream_recovering(policy).unwrap();
        // The inputs of the next operations.
        stream.tensor_plan(&work.plans[0]).unwrap().wait().unwrap();
        let before = bench.worker();
        let again = work.lose(&bench, &stream);
        assert!(again >= work.plans.iter().filter(|plan| plan.steps() == 1).count() && again > 0);
        work.expect(&stream);
        assert_ne!(bench.worker(), before);
    }
}
