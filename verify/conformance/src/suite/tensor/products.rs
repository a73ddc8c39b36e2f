//! Matrix products, by each algorithm.

use elinvar::Device;
use elinvar::tensor::{Activation, DataType, MatMul, Plan, Route, TensorMut, TensorRef};

use super::super::{CaseResult, Failure};
use super::{Layout, Near, Random, Stored, UNIT, broadcast, indices};

cases! {
    "tensor": products, products_of_vectors, products_of_integers, products_with_all, batches, large_products, block_products,
    operation_products,
    products_without_terms, refused_products, random_products
}

/// Runs a product by the planner's choice, or by an algorithm.
fn compute(
    operation: MatMul,
    algorithm: Option<&'static str>,
    inputs: &[&Stored],
    out: &mut Stored,
) -> Result<&'static str, Failure> {
    let inputs = inputs.iter().map(|input| input.view()).collect::<elinvar::Result<Vec<_>>>()?;
    let inputs: Vec<&TensorRef<'_>> = inputs.iter().collect();
    let mut out: TensorMut<'_> = out.view_mut()?;
    let plan = match algorithm {
        None => Plan::new(operation, &inputs, &mut [&mut out], Route::Kernel)?,
        Some(algorithm) => Plan::with_algorithm(operation, &inputs, &mut [&mut out], algorithm)?,
    };
    assert!(algorithm.is_none_or(|algorithm| plan.algorithm() == algorithm));
    plan.device().stream()?.tensor_plan(&plan)?.wait()?;
    Ok(plan.algorithm())
}

const COLUMNS: &str = "columns";
const DOTS: &str = "dot products";
const TILES: &str = "simdgroup matrices";
const BLOCKS: &str = "blocks";
const OPERATIONS: &str = "tensor operations";

/// The exact product of matrices or batches of them, each element with its terms.
struct Exact<'e> {
    left: (&'e [usize], &'e [f64]),
    right: (&'e [usize], &'e [f64]),
}

impl Exact<'_> {
    /// The element at an index of the result.
    fn at(&self, index: &[usize]) -> Near {
        let ((left, x), (right, y)) = (self.left, self.right);
        let (batch, last) = index.split_at(index.len() - 2);
        let terms = left[left.len() - 1];
        let of = |shape: &[usize], values: &[f64], row: usize, column: usize| {
            let index: Vec<usize> = batch.iter().copied().chain([row, column]).collect();
            values[broadcast(&index, shape)]
        };
        Near::sum((0..terms).map(|k| of(left, x, last[0], k) * of(right, y, k, last[1])))
    }
}

/// Every type by every algorithm, with each operand in each order, at sizes that no tile divides.
fn products(device: &Device) -> CaseResult {
    let mut random = Random::new(31);
    for data_type in DataType::FLOATS {
        for (algorithm, m, k, n) in [
            (COLUMNS, 13, 19, 37),
            (COLUMNS, 34, 21, 65),
            (DOTS, 9, 70, 3),
            (TILES, 67, 37, 70),
            (BLOCKS, 72, 40, 88),
        ] {
            for orders in [[false, false], [true, false], [false, true], [true, true]] {
                if data_type != DataType::F32 && orders[0] != orders[1] {
                    continue;
                }
                let layout =
                    |transposed: bool| if transposed { Layout::transposed(2) } else { Layout::row_major() };
                let (a, x) = Stored::random(device, data_type, &[m, k], layout(orders[0]), &mut random)?;
                let (b, y) = Stored::random(device, data_type, &[k, n], layout(orders[1]), &mut random)?;
                let mut out = Stored::new(device, data_type, &[m, n], Layout::row_major(), &[])?;
                compute(MatMul::default(), Some(algorithm), &[&a, &b], &mut out)?;
                let exact = Exact { left: (&[m, k], &x), right: (&[k, n], &y) };
                let index: Vec<Vec<usize>> = indices(&[m, n]).collect();
                out.expect(&format!("{algorithm}, transposed {orders:?}"), |at| exact.at(&index[at]))?;
            }
        }
    }
    Ok(())
}

/// Rows, columns and single numbers.
fn products_of_vectors(device: &Device) -> CaseResult {
    let mut random = Random::new(32);
    for (left, right, result) in [
        (vec![67], vec![67, 35], vec![35]),
        (vec![35, 67], vec![67], vec![35]),
        (vec![67], vec![67], vec![]),
        (vec![2, 5, 33], vec![33], vec![2, 5]),
        (vec![1, 1], vec![1, 1], vec![1, 1]),
        (vec![5], vec![3, 5, 7], vec![3, 7]),
    ] {
        for data_type in [DataType::F32, DataType::BF16] {
            let (a, x) = Stored::random(device, data_type, &left, Layout::row_major(), &mut random)?;
            let (b, y) =
                Stored::random(device, data_type, &right, Layout::transposed(right.len()), &mut random)?;
            let mut out = Stored::new(device, DataType::F32, &result, Layout::row_major(), &[])?;
            compute(MatMul::default(), None, &[&a, &b], &mut out)?;
            let wide_left = if left.len() == 1 { vec![1, left[0]] } else { left.clone() };
            let wide_right = if right.len() == 1 { vec![right[0], 1] } else { right.clone() };
            let exact = Exact { left: (&wide_left, &x), right: (&wide_right, &y) };
            let mut wide = result.clone();
            if left.len() == 1 {
                wide.insert(wide.len() - usize::from(right.len() > 1), 1);
            }
            if right.len() == 1 {
                wide.push(1);
            }
            let index: Vec<Vec<usize>> = indices(&wide).collect();
            out.expect(&format!("{left:?} · {right:?}"), |at| exact.at(&index[at]))?;
        }
    }
    Ok(())
}

fn products_of_integers(device: &Device) -> CaseResult {
    let mut random = Random::new(33);
    for (algorithm, m, k, n) in [(COLUMNS, 33, 67, 35), (DOTS, 5, 130, 2)] {
        let (a, x) = Stored::random(device, DataType::I8, &[m, k], Layout::row_major(), &mut random)?;
        let (b, y) = Stored::random(device, DataType::I8, &[k, n], Layout::transposed(2), &mut random)?;
        let (bias, z) = Stored::random(device, DataType::I32, &[n], Layout::row_major(), &mut random)?;
        let before = random.values(m * n, DataType::I32);
        let mut out = Stored::new(device, DataType::I32, &[m, n], Layout::row_major(), &before)?;
        let operation = MatMul { beta: 1.0, bias: true, activation: Activation::Relu, ..MatMul::default() };
        compute(operation, Some(algorithm), &[&a, &b, &bias], &mut out)?;
        let exact = Exact { left: (&[m, k], &x), right: (&[k, n], &y) };
        let index: Vec<Vec<usize>> = indices(&[m, n]).collect();
        out.expect(algorithm, |at| {
            Near::exact((exact.at(&index[at]).value + before[at] + z[at % n]).max(0.0))
        })?;
    }
    Ok(())
}

/// Factors, a bias for each row or column, activations, by each algorithm.
fn products_with_all(device: &Device) -> CaseResult {
    let mut random = Random::new(34);
    let (m, k, n) = (9, 35, 37);
    for (algorithm, shape, activation) in [
        (COLUMNS, vec![n], Activation::Silu),
        (DOTS, vec![m, 1], Activation::Tanh),
        (TILES, vec![1, n], Activation::Relu),
        (TILES, vec![], Activation::None),
    ] {
        let (a, x) = Stored::random(device, DataType::F16, &[m, k], Layout::row_major(), &mut random)?;
        let (b, y) = Stored::random(device, DataType::F16, &[k, n], Layout::transposed(2), &mut random)?;
        let (bias, z) = Stored::random(device, DataType::F32, &shape, Layout::row_major(), &mut random)?;
        let before = random.values(m * n, DataType::F32);
        let layout = Layout { margins: vec![(1, 2), (2, 1)], ..Layout::default() };
        let mut out = Stored::new(device, DataType::F32, &[m, n], layout, &before)?;
        let operation = MatMul { alpha: 0.25, beta: -0.5, bias: true, activation };
        compute(operation, Some(algorithm), &[&a, &b, &bias], &mut out)?;
        let exact = Exact { left: (&[m, k], &x), right: (&[k, n], &y) };
        let index: Vec<Vec<usize>> = indices(&[m, n]).collect();
        out.expect(&format!("{algorithm}, {activation:?}"), |at| {
            let product = exact.at(&index[at]);
            let value = 0.25 * product.value - 0.5 * before[at] + z[broadcast(&index[at], &shape)];
            let error = 0.25 * product.error + 8.0 * UNIT * (value.abs() + 8.0);
            // The functions' slopes are at most 1.1.
            let value = match activation {
                Activation::Silu => value / (1.0 + (-value).exp()),
                Activation::Tanh => value.tanh(),
                Activation::Relu => value.max(0.0),
                _ => value,
            };
            Near { value, error: 1.1 * error + 16.0 * UNIT * value.abs() }
        })?;
    }
    Ok(())
}

/// Batches that are broadcast, with the axes in any order.
fn batches(device: &Device) -> CaseResult {
    let mut random = Random::new(35);
    for (left, right, result, algorithm) in [
        (vec![3, 5, 7], vec![7, 9], vec![3, 5, 9], COLUMNS),
        (vec![2, 1, 5, 7], vec![3, 7, 9], vec![2, 3, 5, 9], COLUMNS),
        (vec![2, 1, 34, 7], vec![2, 3, 7, 33], vec![2, 3, 34, 33], COLUMNS),
        (vec![1, 17, 20], vec![3, 20, 18], vec![3, 17, 18], TILES),
        (vec![4, 1, 3, 9], vec![1, 2, 9, 5], vec![4, 2, 3, 5], DOTS),
    ] {
        let layouts = [&left, &right, &result].map(|shape| Layout::random(shape.len(), &mut random));
        let [layout_a, layout_b, layout_c] = layouts;
        let (a, x) = Stored::random(device, DataType::F16, &left, layout_a, &mut random)?;
        let (b, y) = Stored::random(device, DataType::F16, &right, layout_b, &mut random)?;
        let mut out = Stored::new(device, DataType::F32, &result, layout_c, &[])?;
        compute(MatMul::default(), Some(algorithm), &[&a, &b], &mut out)?;
        let exact = Exact { left: (&left, &x), right: (&right, &y) };
        let index: Vec<Vec<usize>> = indices(&result).collect();
        out.expect(&format!("{left:?} · {right:?}"), |at| exact.at(&index[at]))?;
    }
    Ok(())
}

/// Several tiles and panels along each axis, by the planner's choice.
fn large_products(device: &Device) -> CaseResult {
    let mut random = Random::new(36);
    let (m, k, n) = (131, 129, 197);
    let (a, x) = Stored::random(device, DataType::F32, &[m, k], Layout::row_major(), &mut random)?;
    let (b, y) = Stored::random(device, DataType::F32, &[k, n], Layout::row_major(), &mut random)?;
    let exact = Exact { left: (&[m, k], &x), right: (&[k, n], &y) };
    let index: Vec<Vec<usize>> = indices(&[m, n]).collect();
    let wanted: Vec<Near> = index.iter().map(|index| exact.at(index)).collect();
    for algorithm in [None, Some(TILES)] {
        let mut out = Stored::new(device, DataType::F32, &[m, n], Layout::row_major(), &[])?;
        compute(MatMul::default(), algorithm, &[&a, &b], &mut out)?;
        out.expect("a large product", |at| wanted[at])?;
    }
    Ok(())
}

/// Blocks of both sizes at sizes that no block divides, with all that can be done to a sum. A batch repeats the factors, so that a GPU has
/// enough groups for large blocks.
fn aligned_products(device: &Device, algorithm: &'static str, data_types: &[DataType]) -> CaseResult {
    let mut random = Random::new(38);
    let is_cpu = device.caps().limits.vector_bits.is_some();
    let (batch, m, k, n) = (if is_cpu { 2 } else { 40 }, 136, 72, 144);
    for (data_type, transposed) in
        data_types.iter().copied().zip([[true, false], [false, true], [true, true]])
    {
        let order = |transposed: bool| if transposed { Layout::transposed(2) } else { Layout::row_major() };
        let (a, x) = Stored::random(device, data_type, &[m, k], order(transposed[0]), &mut random)?;
        let (b, y) = Stored::random(device, data_type, &[k, n], order(transposed[1]), &mut random)?;
        let (bias, z) = Stored::random(device, DataType::F32, &[n], Layout::row_major(), &mut random)?;
        let before = random.values(batch * m * n, DataType::F32);
        let mut out = Stored::new(device, DataType::F32, &[batch, m, n], Layout::row_major(), &before)?;
        let operation = MatMul { alpha: 0.5, beta: 2.0, bias: true, activation: Activation::Relu };
        {
            let (left, right, bias) =
                (a.view()?.broadcast(&[batch, m, k])?, b.view()?.broadcast(&[batch, k, n])?, bias.view()?);
            let mut out = out.view_mut()?;
            let plan = Plan::with_algorithm(operation, &[&left, &right, &bias], &mut [&mut out], algorithm)?;
            assert_eq!(plan.algorithm(), algorithm);
            device.stream()?.tensor_plan(&plan)?.wait()?;
        }
        let exact = Exact { left: (&[m, k], &x), right: (&[k, n], &y) };
        let index: Vec<Vec<usize>> = indices(&[m, n]).collect();
        let wanted: Vec<Near> = index.iter().map(|index| exact.at(index)).collect();
        out.expect(&format!("{algorithm} of {data_type:?}"), |at| {
            let product = wanted[at % (m * n)];
            let value = 0.5 * product.value + 2.0 * before[at] + z[at % n];
            Near { value: value.max(0.0), error: 0.5 * product.error + 8.0 * UNIT * (value.abs() + 8.0) }
        })?;
    }
    Ok(())
}

fn block_products(device: &Device) -> CaseResult {
    aligned_products(device, BLOCKS, &DataType::FLOATS)?;
    let mut random = Random::new(39);
    // Rows that are no whole words.
    let (a, _) = Stored::random(device, DataType::F16, &[64, 36], Layout::row_major(), &mut random)?;
    let mut out = Stored::new(device, DataType::F16, &[64, 64], Layout::row_major(), &[])?;
    let (b, _) = Stored::random(device, DataType::F16, &[36, 64], Layout::row_major(), &mut random)?;
    let error =
        compute(MatMul::default(), Some(BLOCKS), &[&a, &b], &mut out).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("`blocks`")), "{error:?}");
    Ok(())
}

/// Products by `matmul2d`, which take types of 16 bits.
fn operation_products(device: &Device) -> CaseResult {
    aligned_products(device, OPERATIONS, &[DataType::F16, DataType::BF16])?;
    // A result of the factors' type, as it is, at sizes that the tile divides and at others.
    let mut random = Random::new(40);
    for (data_type, [m, k, n]) in
        [(DataType::F16, [128, 64, 256]), (DataType::BF16, [256, 40, 264]), (DataType::F16, [64, 200, 520])]
    {
        let (a, x) = Stored::random(device, data_type, &[m, k], Layout::row_major(), &mut random)?;
        let (b, y) = Stored::random(device, data_type, &[k, n], Layout::row_major(), &mut random)?;
        let mut out = Stored::new(device, data_type, &[m, n], Layout::row_major(), &[])?;
        compute(MatMul::default(), Some(OPERATIONS), &[&a, &b], &mut out)?;
        let exact = Exact { left: (&[m, k], &x), right: (&[k, n], &y) };
        let index: Vec<Vec<usize>> = indices(&[m, n]).collect();
        out.expect("tensor operations", |at| exact.at(&index[at]))?;
    }
    let (a, _) = Stored::random(device, DataType::F32, &[64, 64], Layout::row_major(), &mut random)?;
    let mut out = Stored::new(device, DataType::F32, &[64, 64], Layout::row_major(), &[])?;
    let error =
        compute(MatMul::default(), Some(OPERATIONS), &[&a, &a], &mut out).err().map(|e| e.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("`tensor operations`")), "{error:?}");
    Ok(())
}

/// An empty sum is 0; a result without elements is left alone.
fn products_without_terms(device: &Device) -> CaseResult {
    let a = Stored::new(device, DataType::F32, &[3, 0], Layout::row_major(), &[])?;
    let b = Stored::new(device, DataType::F32, &[0, 5], Layout::row_major(), &[])?;
    for algorithm in [COLUMNS, DOTS, TILES] {
        let mut out = Stored::new(device, DataType::F32, &[3, 5], Layout::row_major(), &[])?;
        compute(MatMul::default(), Some(algorithm), &[&a, &b], &mut out)?;
        out.expect(algorithm, |_| Near::exact(0.0))?;
    }
    let none = Stored::new(device, DataType::F32, &[5, 0], Layout::row_major(), &[])?;
    let mut out = Stored::new(device, DataType::F32, &[0, 0], Layout::row_major(), &[])?;
    compute(MatMul::default(), None, &[&b, &none], &mut out)?;
    // A result that is not read may hold NaN.
    let one = Stored::new(device, DataType::F32, &[1, 1], Layout::row_major(), &[2.0])?;
    let mut out = Stored::new(device, DataType::F32, &[1, 1], Layout::row_major(), &[f64::NAN])?;
    compute(MatMul::default(), None, &[&one, &one], &mut out)?;
    out.expect("beta 0", |_| Near::exact(4.0))
}

fn refused_products(device: &Device) -> CaseResult {
    let of = |data_type, shape: &[usize]| Stored::new(device, data_type, shape, Layout::row_major(), &[]);
    let float = |shape: &[usize]| of(DataType::F32, shape);
    let bias = MatMul { bias: true, ..MatMul::default() };
    let scaled = MatMul { alpha: 2.0, ..MatMul::default() };
    for (operation, inputs, out, parts) in [
        (
            MatMul::default(),
            vec![float(&[4, 3])?, float(&[5, 6])?],
            float(&[4, 6])?,
            &["`left` [4, 3]", "`right` [5, 6]", "axis 1 has 3 elements, axis 0 has 5"][..],
        ),
        (
            MatMul::default(),
            vec![float(&[4, 3])?, float(&[3, 6])?],
            float(&[4, 5])?,
            &["`result` [4, 5]", "[4, 6]", "axis 1 has 5 elements, not 6"],
        ),
        (
            MatMul::default(),
            vec![float(&[2, 4, 3])?, float(&[3, 3, 6])?],
            float(&[3, 4, 6])?,
            &["`left`", "[2, 4, 3]", "axis 0 has 2 elements, not 3 or 1"],
        ),
        (
            bias,
            vec![float(&[4, 3])?, float(&[3, 6])?, float(&[4])?],
            float(&[4, 6])?,
            &["`bias`", "axis 0 has 4 elements, not 6 or 1"],
        ),
        (bias, vec![float(&[4, 3])?, float(&[3, 6])?], float(&[4, 6])?, &["3 inputs (left, right, bias)"]),
        (
            MatMul::default(),
            vec![float(&[4, 3])?, of(DataType::F16, &[3, 6])?],
            float(&[4, 6])?,
            &["types of `left` and `right` differ"],
        ),
        (
            MatMul::default(),
            vec![of(DataType::I8, &[4, 3])?, of(DataType::I8, &[3, 6])?],
            float(&[4, 6])?,
            &["a product of i8 is i32"],
        ),
        (
            scaled,
            vec![of(DataType::I8, &[4, 3])?, of(DataType::I8, &[3, 6])?],
            of(DataType::I32, &[4, 6])?,
            &["alpha is 1"],
        ),
        (MatMul::default(), vec![float(&[])?, float(&[3, 6])?], float(&[6])?, &["must have an axis"]),
        (MatMul::default(), vec![float(&[2, 3])?, float(&[3, 6])?], float(&[6])?, &["too few axes"]),
    ] {
        let mut out = out;
        let inputs: Vec<&Stored> = inputs.iter().collect();
        let error =
            compute(operation, None, &inputs, &mut out).err().map_or_else(String::new, |e| e.to_string());
        for part in parts {
            assert!(error.contains(part), "`{error}` lacks `{part}`");
        }
    }
    // Integers have no simdgroup matrices.
    let (a, b) = (of(DataType::I8, &[4, 3])?, of(DataType::I8, &[3, 6])?);
    let mut out = of(DataType::I32, &[4, 6])?;
    let error =
        compute(MatMul::default(), Some(TILES), &[&a, &b], &mut out).err().map(|error| error.to_string());
    assert!(error.as_ref().is_some_and(|error| error.contains("`columns` does")), "{error:?}");
    Ok(())
}

/// Random shapes, strides and types, by the planner's choice.
fn random_products(device: &Device) -> CaseResult {
    let mut random = Random::new(37);
    for round in 0..10 {
        let sizes = [1, 2, 3, 5, 8, 17, 33, 40];
        let (m, k, n) = (random.pick(&sizes), random.pick(&sizes), random.pick(&sizes));
        let batch: Vec<usize> = (0..random.below(3)).map(|_| random.pick(&[1, 2, 3])).collect();
        let shape = |random: &mut Random, last: [usize; 2]| -> Vec<usize> {
            let batch = batch.iter().map(|size| if random.below(3) == 0 { 1 } else { *size });
            batch.chain(last).collect()
        };
        let (left, right) = (shape(&mut random, [m, k]), shape(&mut random, [k, n]));
        let result: Vec<usize> = batch.iter().copied().chain([m, n]).collect();
        let data_type = DataType::FLOATS[round % 3];
        let layouts = [&left, &right, &result].map(|shape| Layout::random(shape.len(), &mut random));
        let [layout_a, layout_b, layout_c] = layouts;
        let (a, x) = Stored::random(device, data_type, &left, layout_a, &mut random)?;
        let (b, y) = Stored::random(device, data_type, &right, layout_b, &mut random)?;
        let mut out = Stored::new(device, data_type, &result, layout_c, &[])?;
        let algorithm = compute(MatMul::default(), None, &[&a, &b], &mut out)?;
        let exact = Exact { left: (&left, &x), right: (&right, &y) };
        let index: Vec<Vec<usize>> = indices(&result).collect();
        out.expect(&format!("{left:?} · {right:?} by {algorithm}"), |at| exact.at(&index[at]))?;
    }
    Ok(())
}
